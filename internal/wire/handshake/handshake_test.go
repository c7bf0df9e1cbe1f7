package handshake

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// shake does a handshake over loopback, and returns the errors of both ends.
func shake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	defer l.Close()
	y, err := net.Dial("tcp", l.Addr().String())
	testsupport.NoError(t, err)
	defer y.Close()
	x, err := l.Accept()
	testsupport.NoError(t, err)
	defer x.Close()
	for _, c := range []net.Conn{x, y} {
		c.SetDeadline(time.Now().Add(time.Minute))
	}
	s, k := tls.Server(x, server), tls.Client(y, client)
	served := make(chan error, 1)
	go func() {
		_, err := s.Write([]byte("x"))
		served <- err
	}()
	_, clientErr = k.Read(make([]byte, 1))
	return k.ConnectionState(), <-served, clientErr
}

type sides struct{ server, client *tls.Config }

func newSides(t *testing.T, change func(sides)) sides {
	t.Helper()
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	cert, err := ca.ServerCert("localhost")
	testsupport.NoError(t, err)
	s := sides{&tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: ca.Pool()}, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}}
	change(s)
	return s
}

// The test checks the reason at both ends of a failed handshake.
func TestWhyAHandshakeFailed(t *testing.T) {
	for _, row := range []struct {
		name           string
		change         func(sides)
		server, client Reason
	}{
		{"the client is too old", func(s sides) { s.server.MinVersion, s.client.MaxVersion = tls.VersionTLS13, tls.VersionTLS12 }, Version, Version},
		{"the server is too old", func(s sides) { s.server.MaxVersion, s.client.MinVersion = tls.VersionTLS12, tls.VersionTLS13 }, Version, Version},
		{"no group", func(s sides) {
			s.server.CurvePreferences, s.client.CurvePreferences = []tls.CurveID{tls.CurveP384}, []tls.CurveID{tls.X25519}
		}, Mismatch, Mismatch},
		{"no cipher suite", func(s sides) {
			s.client.MaxVersion = tls.VersionTLS12
			s.client.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256} // the server's key is not RSA
		}, Mismatch, Mismatch},
		{"no certificate of the client", func(s sides) { s.server.ClientAuth = tls.RequireAndVerifyClientCert }, Certificate, Refused},
		{"a certificate of the client that is not trusted", func(s sides) {
			s.server.ClientAuth, s.client.Certificates = tls.RequireAndVerifyClientCert, newSides(t, func(sides) {}).server.Certificates
			s.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &s.client.Certificates[0], nil }
		}, Certificate, Refused},
		{"a certificate of the server that is not trusted", func(s sides) { s.client.ServerName = "other" }, Refused, Certificate},
		{"no protocol", func(s sides) { s.server.NextProtos, s.client.NextProtos = []string{"a"}, []string{"b"} }, ALPN, ALPN},
	} {
		s := newSides(t, row.change)
		_, server, client := shake(t, s.server, s.client)
		if server == nil || client == nil {
			t.Errorf("%s: the handshake succeeded: %v, %v", row.name, server, client)
			continue
		}
		if got := ReasonOf(server); got != row.server {
			t.Errorf("%s: the server reports %s (%v), want %s", row.name, reasonNames[got], server, reasonNames[row.server])
		}
		if got := ReasonOf(client); got != row.client {
			t.Errorf("%s: the client reports %s (%v), want %s", row.name, reasonNames[got], client, reasonNames[row.client])
		}
	}
	if got := ReasonOf(errors.New("something else")); got != Invalid {
		t.Errorf("something else is %s", reasonNames[got])
	}
}

// Each group can be the only one. The counters know all versions.
func TestEachGroupAndVersionIsAllowedAndCounted(t *testing.T) {
	for _, version := range versions {
		v := version.name
		for _, name := range GroupNames() {
			if v == "1.2" && IsHybrid(name) {
				continue
			}
			s := newSides(t, func(s sides) {
				NewPolicy("1.2", []string{name}).Apply(s.client)
				if v == "1.2" {
					s.client.MaxVersion = tls.VersionTLS12
				}
				NewPolicy(v, GroupNames()).Apply(s.server)
			})
			state, server, client := shake(t, s.server, s.client)
			testsupport.MustTrue(t, server == nil && client == nil, "%s over %s: %v, %v", name, v, server, client)
			var c counts
			c.versions.Add(&state)
			text := gather(t, &c)
			testsupport.True(t, strings.Contains(text, `version="`+v+`"} 1`) && strings.Count(text, "} 1") == 1, "%s over %s is counted as\n%s", name, v, text)
			i := slices.IndexFunc(groups[:], func(g group) bool { return g.id == state.CurveID })
			testsupport.True(t, i >= 0 && groups[i].name == name, "%s over %s used the group %v", name, v, state.CurveID)
		}
	}
}

// A version that never succeeds does not count.
func TestHandshakesAreCountedByVersionAndReason(t *testing.T) {
	var c counts
	for _, v := range []uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS13, tls.VersionTLS11} {
		c.versions.Add(&tls.ConnectionState{Version: v})
	}
	c.failures.Add(Version)
	text := gather(t, &c)
	for _, want := range []string{`{version="1.2"} 1`, `{version="1.3"} 2`, `{reason="version"} 1`, `{reason="timeout"} 0`} {
		testsupport.True(t, strings.Contains(text, want), "no %s in\n%s", want, text)
	}
}

// counts are the counters of a test, and of its metrics.
type counts struct {
	versions VersionCounts
	failures Failures
}

var (
	allDescs     metrics.Descs
	versionsDesc = allDescs.New("adbuffer_x_versions_total", "Versions.", "version")
	failuresDesc = allDescs.New("adbuffer_x_failures_total", "Failures.", "reason")
)

func gather(t *testing.T, c *counts) string {
	t.Helper()
	source := metrics.NewSource(allDescs, func(to metrics.Sink) {
		c.versions.Series(to, versionsDesc)
		c.failures.Series(to, failuresDesc)
	})
	text, err := testutil.CollectAndFormat(source, expfmt.TypeTextPlain, "adbuffer_x_versions_total", "adbuffer_x_failures_total")
	testsupport.NoError(t, err)
	return string(text)
}

// The RFC's list contains all Go suites of TLS 1.2 that are not in HTTP2Suites: suites without
// ephemeral keys, or with CBC, RC4 or 3DES.
func TestNoSuiteThatHTTP2AllowsIsLeftOut(t *testing.T) {
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			continue
		}
		name := s.Name
		good := strings.Contains(name, "ECDHE") && (strings.Contains(name, "GCM") || strings.Contains(name, "POLY1305"))
		testsupport.True(t, good == slices.Contains(HTTP2Suites, s.ID), "%s: allowed is %v", name, !good)
	}
}
