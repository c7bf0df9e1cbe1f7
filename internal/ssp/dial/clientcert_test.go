package dial

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// identity is a client certificate in files.
type identity struct {
	ca                *authority
	certFile, keyFile string
	written           time.Time
}

func newIdentity(t *testing.T, ca *authority, name string) *identity {
	t.Helper()
	dir := t.TempDir()
	id := &identity{ca: ca, certFile: filepath.Join(dir, "client.pem"), keyFile: filepath.Join(dir, "client.key"), written: time.Now()}
	id.write(t, name)
	return id
}

func (id *identity) write(t *testing.T, name string) {
	t.Helper()
	testsupport.WriteCertificate(t, id.ca.valid(t, name), id.certFile, id.keyFile)
	id.touch(t)
}

// touch gives the files a new modification time.
func (id *identity) touch(t *testing.T) {
	t.Helper()
	id.written = id.written.Add(time.Second)
	testsupport.NoError(t, os.Chtimes(id.certFile, id.written, id.written))
	testsupport.NoError(t, os.Chtimes(id.keyFile, id.written, id.written))
}

// mutual listens for clients with a certificate of ca.
func mutual(t *testing.T, ca *authority, version uint16) *peer {
	t.Helper()
	return listenTLS(t, &tls.Config{
		Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}, MaxVersion: version,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: testsupport.Roots(ca.Certificate),
	})
}

// dialAs dials and returns the client name that the peer saw.
func (p *peer) dialAs(t *testing.T, d *Dialer) (name string, resumed bool) {
	t.Helper()
	r := p.dial(t, d, true)
	readOne(t, r)
	r.Conn.Close()
	return (<-p.state).PeerCertificates[0].Subject.CommonName, hasResumed(r)
}

func TestTheClientCertificateIsShown(t *testing.T) {
	ca := newAuthority()
	id := newIdentity(t, ca, "adbuffer-1")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		p := mutual(t, ca, version)
		o := p.https(t, ca, "ssp.test")
		o.TLS.CertFile, o.TLS.KeyFile = id.certFile, id.keyFile
		name, _ := p.dialAs(t, newDialer(t, o))
		testsupport.True(t, name == "adbuffer-1", "%s: the peer saw %q", tls.VersionName(version), name)
	}
}

func TestAPeerThatWantsAnotherCertificateIsATLSFault(t *testing.T) {
	ca := newAuthority()
	p := mutual(t, ca, tls.VersionTLS12) // with TLS 1.3 the peer reports the refusal after the handshake
	stranger := newIdentity(t, newAuthority(), "stranger")
	for _, id := range []*identity{{}, stranger} {
		o := p.https(t, ca, "ssp.test")
		o.TLS.CertFile, o.TLS.KeyFile = id.certFile, id.keyFile
		e := dialError(t, newDialer(t, o), p.addr("ssp.test"), exchange.TLSFailed, "tls.cert_file")
		testsupport.Equal(t, kind(e), "tls", "%[2]v is counted as %[1]s", e)
	}
}

func TestAChangedClientCertificateIsUsedByTheNextHandshake(t *testing.T) {
	ca := newAuthority()
	id := newIdentity(t, ca, "first")
	p := mutual(t, ca, tls.VersionTLS13)
	o := p.https(t, ca, "ssp.test")
	o.TLS.CertFile, o.TLS.KeyFile = id.certFile, id.keyFile
	o.Warn = func(err error) { t.Error(err) }
	d := newDialer(t, o)
	for i, want := range []string{"first", "first", "second", "second"} {
		if i == 2 {
			id.write(t, "second")
		}
		// The session of the first certificate would still carry the first name.
		name, resumed := p.dialAs(t, d)
		testsupport.True(t, name == want && resumed == (i%2 == 1), "handshake %d: the peer saw %q, resumed is %v; want %q", i, name, resumed, want)
	}
}

func TestABrokenClientCertificateLeavesTheOldOneInUse(t *testing.T) {
	ca := newAuthority()
	id := newIdentity(t, ca, "first")
	p := mutual(t, ca, tls.VersionTLS13)
	o := p.https(t, ca, "ssp.test")
	o.TLS.CertFile, o.TLS.KeyFile = id.certFile, id.keyFile
	var mu sync.Mutex
	var warned []string
	o.Warn = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		warned = append(warned, err.Error())
	}
	d := newDialer(t, o)
	breaks := []func(){
		func() { writeFile(t, id.certFile, "half of it"); id.touch(t) },
		func() {
			testsupport.WriteCertificate(t, ca.valid(t, "x"), id.certFile, filepath.Join(t.TempDir(), "x.key"))
			id.touch(t)
		},
		func() { testsupport.NoError(t, os.Remove(id.keyFile)) },
	}
	for i, breakIt := range breaks {
		breakIt()
		for range 3 {
			name, _ := p.dialAs(t, d)
			testsupport.True(t, name == "first", "break %d: the peer saw %q", i, name)
		}
		mu.Lock()
		testsupport.True(t, len(warned) == i+1 && hasAll(warned[i], "tls.", filepath.Dir(id.certFile), "stays in use"), "break %d: warned %q", i, warned)
		mu.Unlock()
	}
	id.write(t, "second")
	name, _ := p.dialAs(t, d)
	testsupport.Equal(t, name, "second", "after the repair the peer saw %q")
	testsupport.True(t, !strings.Contains(strings.Join(warned, ""), "PRIVATE"), "a warning contains content of the files: %q", warned)
}
