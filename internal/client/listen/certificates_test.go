package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/test/testsupport"
)

// certs are the certificates in a folder, with their log.
type certs struct {
	*Certificates
	t     *testing.T
	dir   string
	files Files
	logs  *observer.ObservedLogs
}

func loadCerts(t *testing.T, a *authority, change func(*Files)) *certs {
	t.Helper()
	c := &certs{t: t, dir: t.TempDir()}
	c.files = a.write(c.dir)
	if change != nil {
		change(&c.files)
	}
	core, logs := observer.New(zap.InfoLevel)
	c.logs = logs
	var err error
	c.Certificates, err = LoadCertificates(c.files, zap.New(core))
	must(t, err)
	return c
}

// handshake does a TLS handshake, and returns the states of both ends.
func (c *certs) handshake(server, client *tls.Config) (s, k tls.ConnectionState, _ error) {
	c.t.Helper()
	y, x := testsupport.ConnPair(c.t, "tcp")
	must(c.t, y.SetDeadline(time.Now().Add(patience)))
	defer x.Close()
	served := make(chan error, 1)
	tlsServer, tlsClient := tls.Server(x, server), tls.Client(y, client)
	go func() {
		err := tlsServer.Handshake()
		if err == nil {
			_, err = tlsServer.Write([]byte("hello")) // session tickets come before it
		}
		if err != nil {
			x.Close()
		}
		served <- err
	}()
	err := tlsClient.Handshake()
	if err == nil {
		var b [5]byte
		_, err = tlsClient.Read(b[:])
	}
	if err != nil {
		y.Close()
	}
	if serveErr := <-served; serveErr != nil {
		err = serveErr
	}
	return tlsServer.ConnectionState(), tlsClient.ConnectionState(), err
}

// serial returns the serial number of the certificate that a client sees.
func (c *certs) serial(server *tls.Config, a *authority) string {
	c.t.Helper()
	_, k, err := c.handshake(server, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"})
	must(c.t, err)
	return k.PeerCertificates[0].SerialNumber.String()
}

func (c *certs) wantMetric(want string) {
	c.t.Helper()
	if err := testutil.CollectAndCompare(NewCertificatesCollector([]*Certificates{c.Certificates}), strings.NewReader(`
# HELP adbuffer_tls_certificate_reload_successful 1 if the listener's certificate files were valid when they were last read, 0 if older certificates are still in use.
# TYPE adbuffer_tls_certificate_reload_successful gauge
adbuffer_tls_certificate_reload_successful{listener="server"} `+want+"\n"), "adbuffer_tls_certificate_reload_successful"); err != nil {
		c.t.Error(err)
	}
}

func TestAReloadServesTheNewCertificateToNewHandshakes(t *testing.T) {
	a := newAuthority(t)
	c := loadCerts(t, a, nil)
	config := c.Config("h2", "http/1.1")
	before := c.serial(config, a)
	must(t, c.Reload()) // nothing has changed
	testsupport.True(t, c.logs.Len() == 0, "logged: %v", c.logs.All())
	a.write(c.dir)
	testsupport.Equal(t, c.serial(config, a), before, "the certificate changed without a reload: %v")
	must(t, c.Reload())
	testsupport.True(t, c.serial(config, a) != before, "the certificate is the old one")
	c.wantMetric("1")
	_, k, err := c.handshake(config, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", NextProtos: []string{"h2"}})
	testsupport.True(t, err == nil && k.NegotiatedProtocol == "h2", "negotiated %q, %v", k.NegotiatedProtocol, err)
}

// A client that can only use TLS 1.2 with suites that HTTP/2 prohibits gets HTTP/1.1.
func TestHTTP2IsNotOfferedToAClientWithProhibitedSuitesOnly(t *testing.T) {
	a := newAuthority(t)
	config := loadCerts(t, a, nil).Config("h2", "http/1.1")
	c := loadCerts(t, a, nil)
	for name, row := range map[string]struct {
		version uint16
		suites  []uint16
		want    string
	}{
		"TLS 1.3":                    {tls.VersionTLS13, nil, "h2"},
		"TLS 1.2, AEAD":              {tls.VersionTLS12, nil, "h2"},
		"TLS 1.2, CBC":               {tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, "http/1.1"},
		"TLS 1.2, no ephemeral keys": {tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, "http/1.1"},
	} {
		_, k, err := c.handshake(config, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", NextProtos: []string{"h2", "http/1.1"},
			MaxVersion: row.version, CipherSuites: row.suites})
		testsupport.True(t, err == nil && k.NegotiatedProtocol == row.want, "%s: negotiated %q, %v; want %q", name, k.NegotiatedProtocol, err, row.want)
	}
}

// countedConn counts its writes.
type countedConn struct {
	net.Conn
	writes int
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

func TestTheFirstResponseOverTLSIsOneWrite(t *testing.T) {
	a := newAuthority(t)
	near, far := net.Pipe()
	defer near.Close()
	conn := &countedConn{Conn: near}
	server := tls.Server(conn, loadCerts(t, a, nil).Config())
	writes := make(chan int, 1)
	go func() {
		server.Handshake()
		before := conn.writes
		server.Write(make([]byte, 4096))
		writes <- conn.writes - before
	}()
	client := tls.Client(far, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"})
	_, err := io.ReadFull(client, make([]byte, 4096))
	testsupport.NoError(t, err)
	testsupport.Equal(t, <-writes, 1, "%d writes for a response of 4 KB")
}

func TestBrokenFilesAreNamedAndReplaceNoCertificate(t *testing.T) {
	a := newAuthority(t)
	c := loadCerts(t, a, asksClients(tls.VerifyClientCertIfGiven))
	config := c.Config()
	before := c.serial(config, a)
	good := map[string]string{}
	for _, name := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		b, err := os.ReadFile(name)
		must(t, err)
		good[name] = string(b)
	}
	other := newAuthority(t).write(t.TempDir())
	otherCert, err := os.ReadFile(other.Cert)
	must(t, err)
	for _, row := range []struct {
		name, file string
		breakIt    func(file string)
		says       string
	}{
		{"another certificate", c.files.Cert, func(f string) { replace(t, f, string(otherCert)) }, "does not match"},
		{"no PEM", c.files.Cert, func(f string) { replace(t, f, "certificate") }, "PEM"},
		{"empty", c.files.Key, func(f string) { replace(t, f, "") }, "must not be empty"},
		{"half", c.files.Key, func(f string) { replace(t, f, good[f][:len(good[f])/2]) }, "PEM"},
		{"gone", c.files.Key, func(f string) { must(t, os.Remove(f)) }, "no such file"},
		{"a folder", c.files.Cert, func(f string) { must(t, os.Remove(f)); must(t, os.Mkdir(f, 0o700)) }, "must be a regular file"},
		{"huge", c.files.Cert, func(f string) { replace(t, f, strings.Repeat("x", 1<<20+1)) }, "must not be larger than"},
		{"no authority", c.files.CA, func(f string) { replace(t, f, "no certificate") }, "must hold a certificate in PEM"},
	} {
		row.breakIt(row.file)
		err := c.Reload()
		testsupport.True(t, err != nil && strings.Contains(err.Error(), row.file) && strings.Contains(err.Error(), row.says), "%s: %v, want %q and %q", row.name, err, row.file, row.says)
		testsupport.True(t, c.serial(config, a) == before, "%s: the certificate is another", row.name)
		c.wantMetric("0")
		testsupport.True(t, c.logs.FilterMessageSnippet("their files are not valid").Len() == 1, "%s: logged %v", row.name, c.logs.All())
		os.RemoveAll(row.file)
		replace(t, row.file, good[row.file])
		must(t, c.Reload())
		c.wantMetric("1")
		c.logs.TakeAll()
	}
	_, err = LoadCertificates(Files{Name: "server", TLSFiles: configfile.TLSFiles{Cert: other.Cert, Key: c.files.Key}}, zap.NewNop())
	testsupport.True(t, err != nil, "a start with files that do not match succeeded")
}

// The files have the time of the real clock, so the test sets their times by Chtimes.
func TestWatchLoadsAChangeOnceItHasSettled(t *testing.T) {
	a := newAuthority(t)
	c := loadCerts(t, a, nil)
	config := c.Config()
	before := c.serial(config, a)
	next := a.write(t.TempDir())
	cert, err := os.ReadFile(next.Cert)
	must(t, err)
	key, err := os.ReadFile(next.Key)
	must(t, err)
	testsupport.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			c.Watch(ctx)
		}()
		look := func() { time.Sleep(configfile.WatchEvery); synctest.Wait() }
		time.Sleep(configfile.WatchEvery / 2)
		look()
		look()
		look()
		replace(t, c.files.Cert, string(cert)) // but not the key yet
		look()
		replace(t, c.files.Key, string(key))
		look()
		testsupport.True(t, c.logs.Len() == 0, "half a change was loaded: %v", c.logs.All())
		look()
		testsupport.True(t, c.logs.FilterMessage("certificates reloaded").Len() == 1, "the change was not loaded: %v", c.logs.All())
		// A broken file is reported once, not with every poll.
		replace(t, c.files.Key, "broken")
		for range 10 {
			look()
		}
		replace(t, c.files.Key, string(key))
		look()
		look()
		testsupport.True(t, c.logs.FilterMessageSnippet("not valid").Len() == 1 && c.logs.Len() == 2, "logged %v", c.logs.All())
		cancel()
		<-watching
	})
	c.wantMetric("1")
	testsupport.True(t, c.serial(config, a) != before, "the certificate is the old one")
}

func TestClientsNeedACertificateWhereTheAuthorityIsNamed(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	mine, err := a.ClientCert("ops")
	must(t, err)
	foreign, err := stranger.ClientCert("ops")
	must(t, err)
	long := mine
	long.Certificate = slices.Repeat(mine.Certificate[:1], 11) // of which ten are allowed
	for _, row := range []struct {
		auth   tls.ClientAuthType
		client []tls.Certificate
		ok     bool
		certs  int
	}{
		{tls.RequireAndVerifyClientCert, []tls.Certificate{mine}, true, 1},
		{tls.RequireAndVerifyClientCert, []tls.Certificate{foreign}, false, 0},
		{tls.RequireAndVerifyClientCert, nil, false, 0},
		{tls.RequireAndVerifyClientCert, []tls.Certificate{long}, false, 0},
		{tls.VerifyClientCertIfGiven, []tls.Certificate{long}, false, 0},
		{tls.VerifyClientCertIfGiven, []tls.Certificate{mine}, true, 1},
		{tls.VerifyClientCertIfGiven, []tls.Certificate{foreign}, false, 0},
		{tls.VerifyClientCertIfGiven, nil, true, 0},
	} {
		c := loadCerts(t, a, asksClients(row.auth))
		client := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(row.client) == 0 {
				return new(tls.Certificate), nil
			}
			return &row.client[0], nil // also if the server did not request this authority
		}}
		s, _, err := c.handshake(c.Config(), client)
		testsupport.True(t, (err == nil) == row.ok && (err != nil || len(s.PeerCertificates) == row.certs), "%+v: %v, %d certificates", row.auth, err, len(s.PeerCertificates))
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	a := newAuthority(t)
	c := loadCerts(t, a, nil)
	for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		_, _, err := c.handshake(c.Config(), &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", MinVersion: version, MaxVersion: version})
		testsupport.True(t, (err == nil) == ok, "%s: %v", tls.VersionName(version), err)
	}
}

// Sessions stay valid with a new certificate, but not with another authority for the clients'
// certificates.
func TestSessionsResumeAcrossReloadsUnlessTheAuthorityChanges(t *testing.T) {
	a := newAuthority(t)
	c := loadCerts(t, a, asksClients(tls.VerifyClientCertIfGiven))
	mine, err := a.ClientCert("ops")
	must(t, err)
	config := c.Config("http/1.1")
	client := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", Certificates: []tls.Certificate{mine}, ClientSessionCache: tls.NewLRUClientSessionCache(10)}
	client.RootCAs.AppendCertsFromPEM(a.PEM())
	shake := func(resumed bool, certs int) {
		t.Helper()
		s, _, err := c.handshake(config, client)
		must(t, err)
		testsupport.True(t, s.DidResume == resumed && len(s.PeerCertificates) == certs, "resumed: %v, %d certificates; want %v, %d", s.DidResume, len(s.PeerCertificates), resumed, certs)
	}
	shake(false, 1)
	shake(true, 1)
	a.write(c.dir)
	must(t, c.Reload())
	shake(true, 1)
	replace(t, c.files.CA, string(newAuthority(t).PEM()))
	must(t, c.Reload())
	s, _, err := c.handshake(config, client)
	testsupport.True(t, err != nil, "a client of the previous authority is accepted; resumed: %v", s.DidResume)
}

func TestCertificatesShowWhenTheyExpire(t *testing.T) {
	c := loadCerts(t, newAuthority(t), nil)
	reg := prometheus.NewPedanticRegistry()
	must(t, reg.Register(NewCertificatesCollector([]*Certificates{c.Certificates})))
	all, err := reg.Gather()
	must(t, err)
	for _, f := range all {
		if f.GetName() == "adbuffer_tls_certificate_expiry_timestamp_seconds" {
			at := f.Metric[0].Gauge.GetValue()
			testsupport.True(t, at == float64(c.current.Load().expiry().Unix()) && time.Until(time.Unix(int64(at), 0)) >= time.Hour, "expires at %v", at)
			return
		}
	}
	t.Error("there is no such metric")
}
