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

// Each group can be the only one. The counters know all of them.
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
			var c Counts
			c.Succeeded(&state)
			text := gather(t, &c)
			for _, want := range []string{`group="` + name + `",ssp="openx"} 1`, `version="` + v + `"} 1`, `group="other",ssp="openx"} 0`, `reason="timeout",ssp="openx"} 0`} {
				testsupport.True(t, strings.Contains(text, want), "%s over %s: no %s in\n%s", name, v, want, text)
			}
			full, resumed, failed := c.Totals()
			testsupport.True(t, full == 1 && resumed == 0 && failed == 0, "%s over %s: %d handshakes, %d resumed, %d failed", name, v, full, resumed, failed)
			testsupport.Equal(t, strings.Count(text, "} 1"), 2, "%[2]s over %[3]s: counted %[1]d times:\n%[4]s", name, v, text)
		}
	}
}

func TestAResumedSessionIsCountedAsOne(t *testing.T) {
	var c Counts
	c.Succeeded(&tls.ConnectionState{Version: tls.VersionTLS13, DidResume: true})
	c.Failed(Certificate)
	full, resumed, failed := c.Totals()
	testsupport.True(t, full == 0 && resumed == 1 && failed == 1, "%d handshakes, %d resumed, %d failed", full, resumed, failed)
}

func TestAConnectionWithoutAGroupIsOther(t *testing.T) {
	var c Counts
	c.Succeeded(&tls.ConnectionState{Version: tls.VersionTLS12})
	c.Succeeded(&tls.ConnectionState{Version: tls.VersionTLS11, CurveID: 1000}) // this version never succeeds
	c.Failed(Version)
	if text := gather(t, &c); !strings.Contains(text, `group="other",ssp="openx"} 2`) || !strings.Contains(text, `version="1.2"} 1`) || !strings.Contains(text, `reason="version",ssp="openx"} 1`) {
		t.Error(text)
	}
}

var (
	allDescs metrics.Descs
	descs    = NewDescs(&allDescs, "adbuffer_x_tls", "tests", "ssp")
)

func gather(t *testing.T, c *Counts) string {
	t.Helper()
	source := metrics.NewSource(allDescs, func(to metrics.Sink) { descs.Series(to.With("openx"), c) })
	problems, err := testutil.CollectAndLint(source)
	testsupport.True(t, err == nil && len(problems) <= 0, "%v, %v", problems, err)
	text, err := testutil.CollectAndFormat(source, expfmt.TypeTextPlain,
		"adbuffer_x_tls_handshakes_by_version_total", "adbuffer_x_tls_handshakes_by_group_total", "adbuffer_x_tls_handshake_errors_total")
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
