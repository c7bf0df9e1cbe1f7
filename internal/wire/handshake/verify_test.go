package handshake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// issuer signs certificates.
type issuer struct {
	t     *testing.T
	root  *x509.Certificate
	cert  *x509.Certificate
	key   crypto.Signer
	above [][]byte // cert and its issuers, without the root
}

func newRoot(t *testing.T) issuer {
	t.Helper()
	i := issuer{t: t}
	i.root, i.key = i.issue(func(c *x509.Certificate) { c.IsCA = true })
	i.cert = i.root
	return i
}

// under returns an authority that i has signed.
func (i issuer) under(change func(*x509.Certificate)) issuer {
	i.t.Helper()
	cert, key := i.issue(func(c *x509.Certificate) {
		c.IsCA = true
		if change != nil {
			change(c)
		}
	})
	return issuer{i.t, i.root, cert, key, append([][]byte{cert.Raw}, i.above...)}
}

// leaf returns a certificate for localhost with its chain, then extra.
func (i issuer) leaf(change func(*x509.Certificate), extra ...[]byte) tls.Certificate {
	i.t.Helper()
	cert, key := i.issue(func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"localhost"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		if change != nil {
			change(c)
		}
	})
	return tls.Certificate{Certificate: append(append([][]byte{cert.Raw}, i.above...), extra...), PrivateKey: key, Leaf: cert}
}

func (i issuer) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(i.root)
	return p
}

func (i issuer) issue(change func(*x509.Certificate)) (*x509.Certificate, crypto.Signer) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(i.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	change(template)
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	testsupport.NoError(i.t, err)
	cert, err := x509.ParseCertificate(der)
	testsupport.NoError(i.t, err)
	return cert, key
}

// sameNamed returns n certificates of authorities with the name of i, each with a key of its own.
func (i issuer) sameNamed(n int) [][]byte {
	i.t.Helper()
	other, all := newRoot(i.t), make([][]byte, n)
	for k := range all {
		cert, _ := other.issue(func(c *x509.Certificate) { c.IsCA = true })
		all[k] = cert.Raw
	}
	return all
}

func expired(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }

// endpoints are the two ends of handshakes. They verify each other by this package or, if own is false, by
// crypto/tls alone.
type endpoints struct {
	server, client *tls.Config
	own            bool
}

func (e endpoints) shake(t *testing.T) (s, k tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	server, client := e.server, e.client.Clone()
	if e.own {
		server = server.Clone()
		base := e.server
		server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return VerifyClients(base), nil }
		client = VerifyServer(client)
	}
	near, far := testsupport.ConnPair(t, "tcp")
	for _, c := range []net.Conn{near, far} {
		c.SetDeadline(time.Now().Add(time.Minute))
	}
	x, y := tls.Server(far, server), tls.Client(near, client)
	served := make(chan error, 1)
	go func() {
		_, err := x.Write([]byte("x")) // behind the session tickets
		served <- err
	}()
	_, clientErr = y.Read(make([]byte, 1))
	serverErr = <-served
	return x.ConnectionState(), y.ConnectionState(), serverErr, clientErr
}

// Each handshake ends as with crypto/tls alone, with the same error at the end that verifies.
func TestCertificatesAreVerifiedAsCryptoTLSDoes(t *testing.T) {
	root, stranger := newRoot(t), newRoot(t)
	between := root.under(nil)
	server, client := between.leaf(nil), between.leaf(nil)
	const succeeds = reasons
	for _, row := range []struct {
		name   string
		change func(server, client *tls.Config)
		reason Reason // of the end that verifies
	}{
		{"valid", func(*tls.Config, *tls.Config) {}, succeeds},
		{"a server of another authority", func(s, _ *tls.Config) { s.Certificates = []tls.Certificate{stranger.leaf(nil)} }, Certificate},
		{"an expired server", func(s, _ *tls.Config) { s.Certificates = []tls.Certificate{between.leaf(expired)} }, Certificate},
		{"a server with an expired authority", func(s, _ *tls.Config) { s.Certificates = []tls.Certificate{root.under(expired).leaf(nil)} }, Certificate},
		{"a server with another name", func(_, k *tls.Config) { k.ServerName = "other" }, Certificate},
		{"a server with a certificate for clients", func(s, _ *tls.Config) {
			s.Certificates = []tls.Certificate{between.leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })}
		}, Certificate},
		{"a server without its authority's certificate", func(s, _ *tls.Config) {
			s.Certificates = []tls.Certificate{{Certificate: server.Certificate[:1], PrivateKey: server.PrivateKey}}
		}, Certificate},
		{"any server", func(s, k *tls.Config) {
			s.Certificates, k.InsecureSkipVerify = []tls.Certificate{stranger.leaf(expired)}, true
		}, succeeds},
		{"a client of another authority", func(_, k *tls.Config) { k.Certificates = []tls.Certificate{stranger.leaf(nil)} }, Certificate},
		{"an expired client", func(_, k *tls.Config) { k.Certificates = []tls.Certificate{between.leaf(expired)} }, Certificate},
		{"a client with a certificate for servers", func(_, k *tls.Config) {
			k.Certificates = []tls.Certificate{between.leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })}
		}, Certificate},
		{"no client certificate", func(_, k *tls.Config) { k.Certificates = nil }, Certificate},
		{"a client that need not have one", func(s, k *tls.Config) { s.ClientAuth, k.Certificates = tls.VerifyClientCertIfGiven, nil }, succeeds},
		{"a client that need not have one, and is valid", func(s, _ *tls.Config) { s.ClientAuth = tls.VerifyClientCertIfGiven }, succeeds},
		{"a client that need not have one, and is not valid", func(s, k *tls.Config) {
			s.ClientAuth, k.Certificates = tls.VerifyClientCertIfGiven, []tls.Certificate{stranger.leaf(nil)}
		}, Certificate},
		{"a client that is not asked", func(s, _ *tls.Config) { s.ClientAuth = tls.NoClientCert }, succeeds},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			name := row.name + ", " + tls.VersionName(version)
			e := endpoints{
				&tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: root.pool(), ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version},
				&tls.Config{Certificates: []tls.Certificate{client}, RootCAs: root.pool(), ServerName: "localhost"}, false,
			}
			row.change(e.server, e.client)
			if certs := e.client.Certificates; len(certs) > 0 { // sent also if the server names another authority
				e.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
			}
			_, _, wantServer, wantClient := e.shake(t)
			e.own = true
			state, _, gotServer, gotClient := e.shake(t)
			if row.reason == succeeds {
				testsupport.True(t, wantServer == nil && wantClient == nil && gotServer == nil && gotClient == nil, "%s: %v, %v; with crypto/tls alone %v, %v", name, gotServer, gotClient, wantServer, wantClient)
				sent := len(e.client.Certificates) > 0 && e.server.ClientAuth != tls.NoClientCert
				testsupport.Equal(t, len(state.PeerCertificates) > 0, sent, "%[3]s: the client has a certificate: %[1]v", name)
				continue
			}
			want, got := wantClient, gotClient
			if want == nil || strings.HasPrefix(want.Error(), "remote error") { // the server refuses the client
				want, got = wantServer, gotServer
			}
			testsupport.True(t, want != nil && got != nil && withoutTime(got) == withoutTime(want) && ReasonOf(got) == row.reason, "%s: %v; with crypto/tls alone %v", name, got, want)
		}
	}
}

// The authority of a peer's certificate may expire before the certificate. Then its sessions do not resume.
func TestSessionsResumeWhileTheirCertificatesAreValid(t *testing.T) {
	root := newRoot(t)
	short := root.under(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(10 * time.Minute) })
	long := root.under(nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, row := range []struct {
			name           string
			server, client issuer
			ok             bool
		}{
			{"both stay valid", long, long, true},
			{"the server's authority expires", short, long, false},
			{"the client's authority expires", long, short, false},
		} {
			for _, own := range []bool{false, true} {
				now := time.Now()
				clock := func() time.Time { return now }
				e := endpoints{
					&tls.Config{Certificates: []tls.Certificate{row.server.leaf(nil)}, ClientCAs: root.pool(), ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version, Time: clock},
					&tls.Config{Certificates: []tls.Certificate{row.client.leaf(nil)}, RootCAs: root.pool(), ServerName: "localhost", Time: clock, ClientSessionCache: tls.NewLRUClientSessionCache(4)}, own,
				}
				e.server.SetSessionTicketKeys([][32]byte{{1}})
				for i, resumed := range []bool{false, true, true} { // the third resumes the session of a resumed one
					s, k, serverErr, clientErr := e.shake(t)
					testsupport.True(t, serverErr == nil && clientErr == nil && s.DidResume == resumed && k.DidResume == resumed && len(s.PeerCertificates) > 0 && len(k.PeerCertificates) > 0,
						"%s, own %v, handshake %d: resumed %v, %v, %v", row.name, own, i, s.DidResume, serverErr, clientErr)
				}
				now = now.Add(20 * time.Minute)
				s, _, serverErr, clientErr := e.shake(t)
				testsupport.True(t, s.DidResume == row.ok && (serverErr == nil && clientErr == nil) == row.ok, "%s, own %v, later: resumed %v, %v, %v", row.name, own, s.DidResume, serverErr, clientErr)
				if row.ok {
					continue
				}
				e.server.Certificates[0], e.client.Certificates[0] = long.leaf(nil), long.leaf(nil)
				s, _, serverErr, clientErr = e.shake(t)
				testsupport.True(t, !s.DidResume && serverErr == nil && clientErr == nil, "%s, own %v, with new certificates: resumed %v, %v, %v", row.name, own, s.DidResume, serverErr, clientErr)
			}
		}
	}
}

// A session that began without verification is verified when it is resumed with verification.
func TestASessionWithoutVerificationProvesNothing(t *testing.T) {
	root, stranger := newRoot(t), newRoot(t)
	e := endpoints{&tls.Config{Certificates: []tls.Certificate{stranger.leaf(nil)}},
		&tls.Config{RootCAs: root.pool(), ServerName: "localhost", InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4)}, true}
	e.server.SetSessionTicketKeys([][32]byte{{1}})
	for _, resumed := range []bool{false, true} {
		s, _, _, err := e.shake(t)
		testsupport.True(t, err == nil && s.DidResume == resumed, "resumed %v: %v", s.DidResume, err)
	}
	e.client.InsecureSkipVerify = false
	_, _, _, err := e.shake(t)
	testsupport.True(t, err != nil && ReasonOf(err) == Certificate, "a server of another authority: %v", err)
}

// Without a name any server of the authority would be the right one.
func TestAServerWithoutANameIsRefused(t *testing.T) {
	root := newRoot(t)
	e := endpoints{&tls.Config{Certificates: []tls.Certificate{root.leaf(nil)}}, &tls.Config{RootCAs: root.pool()}, true}
	_, _, _, err := e.shake(t)
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "the server's name is unknown"), "%v", err)
}

// Chains of ten certificates and of 24 KiB are verified. Longer ones are refused before a signature is
// verified, whether certificates are verified or not.
func TestLongChainsAreRefusedUnverified(t *testing.T) {
	testsupport.Long(t)
	root, stranger := newRoot(t), newRoot(t)
	between := root.under(nil)
	extra := between.sameNamed(100)
	sized := func(size int) tls.Certificate { // two certificates of size bytes
		n := size - len(between.cert.Raw) - 1000
		for { // the length of a signature varies
			c := between.leaf(func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, n)}}
			})
			have := len(c.Certificate[0]) + len(between.cert.Raw)
			if have == size {
				return c
			}
			n += size - have
		}
	}
	for _, row := range []struct {
		name string
		cert tls.Certificate
		want string
	}{
		{"10 certificates", between.leaf(nil, extra[:8]...), ""},
		{"11 certificates", between.leaf(nil, extra[:9]...), "the peer sent 11 certificates of "},
		{"11 certificates of another authority", stranger.leaf(nil, extra[:10]...), "the peer sent 11 certificates of "},
		{"102 certificates", between.leaf(nil, extra...), "the peer sent 102 certificates of "},
		{"24576 bytes", sized(24576), ""},
		{"24577 bytes", sized(24577), "the peer sent 2 certificates of 24577 bytes; adbuffer verifies at most 10 certificates of 24576 bytes together"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for _, insecure := range []bool{false, true} {
				name := fmt.Sprintf("%s, %s, insecure %v", row.name, tls.VersionName(version), insecure)
				asServer := endpoints{&tls.Config{Certificates: []tls.Certificate{row.cert}, MaxVersion: version},
					&tls.Config{RootCAs: root.pool(), ServerName: "localhost", InsecureSkipVerify: insecure}, true}
				_, _, _, err := asServer.shake(t)
				wantRefusal(t, "server: "+name, err, row.want)
				auth := tls.VerifyClientCertIfGiven
				if insecure {
					auth = tls.RequireAndVerifyClientCert
				}
				asClient := endpoints{&tls.Config{Certificates: []tls.Certificate{between.leaf(nil)}, MaxVersion: version, ClientCAs: root.pool(), ClientAuth: auth},
					&tls.Config{RootCAs: root.pool(), ServerName: "localhost", Certificates: []tls.Certificate{row.cert}}, true}
				asClient.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &row.cert, nil }
				_, _, err, _ = asClient.shake(t)
				wantRefusal(t, "client: "+name, err, row.want)
			}
		}
	}
}

func wantRefusal(t *testing.T, name string, err error, want string) {
	t.Helper()
	if want == "" {
		testsupport.True(t, err == nil, "%s: %v", name, err)
		return
	}
	testsupport.True(t, err != nil && strings.Contains(err.Error(), want) && ReasonOf(err) == Certificate, "%s: %v, want %q", name, err, want)
}

var currentTime = regexp.MustCompile(`current time \S+`)

// withoutTime returns the text of an error of crypto/x509 without the current time.
func withoutTime(err error) string { return currentTime.ReplaceAllString(err.Error(), "current time") }
