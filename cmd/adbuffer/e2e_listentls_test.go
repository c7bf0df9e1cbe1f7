package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

// authority signs the certificates of listeners and of their clients.
type authority struct {
	*sspsim.CA
	t   *testing.T
	dir string // cert.pem and key.pem of a listener, ca.pem
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca, err := sspsim.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{ca, t, t.TempDir()}
	a.renew()
	a.replace("ca.pem", ca.PEM())
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// renew writes a new certificate and key of the listener.
func (a *authority) renew() {
	a.t.Helper()
	cert, err := a.ServerCert("localhost", "127.0.0.1")
	if err == nil {
		err = sspsim.WriteKeyPair(cert, a.file("cert.new"), a.file("key.new"))
	}
	for _, name := range []string{"cert", "key"} {
		if err == nil {
			err = os.Rename(a.file(name+".new"), a.file(name+".pem"))
		}
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// replace writes a file in one step.
func (a *authority) replace(name string, content []byte) {
	a.t.Helper()
	err := os.WriteFile(a.file(name+".new"), content, 0o600)
	if err == nil {
		err = os.Rename(a.file(name+".new"), a.file(name))
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// client is the configuration of a client that trusts the authority; its
// certificate is of by, nil for none.
func (a *authority) client(by *authority) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}
	if by != nil {
		cert, err := by.ClientCert("ops")
		if err != nil {
			a.t.Fatal(err)
		}
		// Also where the listener asks for one of another authority.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return c
}

// tryTLS opens a connection with TLS, and sends a request: with TLS 1.3 a
// listener that refuses a client's certificate says so only then.
func (ab *adbuffer) tryTLS(config *tls.Config) (*client, *x509.Certificate, error) {
	raw, err := net.DialTimeout(ab.network, ab.traffic, patience)
	if err != nil {
		return nil, nil, err
	}
	raw.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // a closed socket fails the handshake
	c := tls.Client(raw, config)
	k := &client{t: ab.t, c: c, r: bufio.NewReader(c)}
	if err = c.Handshake(); err == nil {
		if _, err = c.Write([]byte(request("GET", "/fillbuffer", ""))); err == nil {
			_, err = k.tryRead("GET")
		}
	}
	if err != nil {
		raw.Close() //nolint:errcheck // the error above matters
		return nil, nil, err
	}
	return k, c.ConnectionState().PeerCertificates[0], nil
}

// serial is that of the certificate which a new client sees.
func (ab *adbuffer) serial(a *authority) string {
	ab.t.Helper()
	k, cert, err := ab.tryTLS(a.client(a))
	if err != nil {
		ab.t.Fatal(err)
	}
	k.close()
	return cert.SerialNumber.String()
}

func tlsSection(a *authority, more string) string {
	return sprintf("server: {tls: {cert_file: %q, key_file: %q%s}}\n", a.file("cert.pem"), a.file("key.pem"), more)
}

func TestCertificatesAreReloadedWhileClientsComeAndGo(t *testing.T) {
	t.Parallel()
	s, a := healthy(t), newAuthority(t)
	ab := start(t, tlsSection(a, "")+single(s.URL()))
	before := ab.serial(a)
	kept, _, err := ab.tryTLS(a.client(nil))
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	comers := make(chan error)
	go func() {
		for !stop.Load() {
			k, _, err := ab.tryTLS(a.client(nil))
			if err != nil {
				comers <- err
				return
			}
			k.close()
		}
		comers <- nil
	}()
	for range 2 {
		a.renew()
		eventually(t, "new clients see the new certificate", func() bool { return ab.serial(a) != before })
		before = ab.serial(a)
		kept.get("/fillbuffer").wantFill("openx")
	}
	ab.wantMetric(1, "adbuffer_tls_certificate_reload_successful", "listener=server")
	if at := ab.metric("adbuffer_tls_certificate_expiry_timestamp_seconds", "listener=server"); time.Until(time.Unix(int64(at), 0)) < time.Hour {
		t.Errorf("the certificate expires at %v", at)
	}

	// Broken, then of another key: nothing changes but what says so.
	for _, content := range []string{"-----BEGIN CERTIFICATE-----\nbroken", readFile(t, newAuthority(t).file("cert.pem"))} {
		good := readFile(t, a.file("cert.pem"))
		a.replace("cert.pem", []byte(content))
		ab.awaitMetric(0, "adbuffer_tls_certificate_reload_successful", "listener=server")
		line, ok := ab.log.line("the certificates stay as they are: their files are not good")
		if text, _ := line["error"].(string); !ok || !strings.Contains(text, a.file("cert.pem")) || line["listener"] != "server" {
			t.Errorf("the log does not say which file: %v", line)
		}
		if ab.serial(a) != before {
			t.Error("the certificate is another")
		}
		a.replace("cert.pem", []byte(good))
		ab.awaitMetric(1, "adbuffer_tls_certificate_reload_successful", "listener=server")
	}
	stop.Store(true)
	if err := <-comers; err != nil {
		t.Errorf("a client was refused meanwhile: %v", err)
	}
	kept.get("/fillbuffer").wantFill("openx")
	kept.close()
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheAuthorityOfClientsIsReloadedToo(t *testing.T) {
	t.Parallel()
	s, a, other := healthy(t), newAuthority(t), newAuthority(t)
	ab := start(t, tlsSection(a, sprintf(", client_ca_file: %q", a.file("ca.pem")))+single(s.URL()))
	let := func(by *authority) bool {
		k, _, err := ab.tryTLS(a.client(by))
		if err == nil {
			k.close()
		}
		return err == nil
	}
	if !let(a) || let(other) || let(nil) {
		t.Errorf("let in: mine %v, of another authority %v, none %v", let(a), let(other), let(nil))
	}
	a.replace("ca.pem", other.PEM())
	eventually(t, "the other authority's clients are let in", func() bool { return let(other) })
	if let(a) || let(nil) {
		t.Errorf("still let in: of the authority before %v, none %v", let(a), let(nil))
	}
}

// A balancer in front of us that does not terminate TLS.
func TestAPROXYHeaderComesBeforeTLS(t *testing.T) {
	t.Parallel()
	s, a := healthy(t), newAuthority(t)
	ab := start(t, strings.Replace(tlsSection(a, ""), "server: {", "server: {proxy_protocol: true, ", 1)+single(s.URL()))
	for _, header := range []string{proxyV1, proxyV2} {
		raw := ab.dial()
		raw.send(header)
		c := tls.Client(raw.c, a.client(nil))
		k := &client{t: t, c: c, r: bufio.NewReader(c)}
		k.get("/fillbuffer", "X-Forwarded-For: 198.51.100.1").wantFill("openx")
		if got := identityFields(lastRequest(t, s)); len(got) != 1 || got[0] != "X-Forwarded-For: 203.0.113.7" {
			t.Errorf("the SSP was told %q", got)
		}
		raw.close()
	}
	// Without one there is no handshake.
	if _, _, err := ab.tryTLS(a.client(nil)); err == nil {
		t.Error("a trusted peer was served without a PROXY header")
	}
	ab.awaitMetric(1, "adbuffer_proxy_protocol_headers_total", "result=missing")
}

// What cannot be read or made for want of permission says which it is.
func TestPermissionsThatFailSayWhich(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	file := a.file("adbuffer.yaml")
	config := tlsSection(a, "") + single("http://127.0.0.1:1/")
	locked := a.file("locked")
	for _, err := range []error{
		os.WriteFile(file, []byte(config), 0o644), //nolint:gosec // the other user must read it
		os.WriteFile(a.file("plain.yaml"), []byte(single("http://127.0.0.1:1/")), 0o644),
		os.Chmod(a.file("cert.pem"), 0o644), os.Chmod(a.file("key.pem"), 0), os.Mkdir(locked, 0o555),
		os.Chmod(filepath.Dir(a.dir), 0o711), os.Chmod(a.dir, 0o711), os.Chmod(filepath.Dir(binary(t)), 0o711), //nolint:gosec // as above
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		file, listen string
		says         []string
	}{
		{file, "127.0.0.1:0", []string{"server.tls.key_file", a.file("key.pem"), "permission denied"}},
		{a.file("plain.yaml"), "unix:" + locked + "/ad.sock", []string{"server.listen", "permission denied", "may not create files in " + locked}},
	} {
		cmd := exec.Command(binary(t), "serve", "--config", row.file)
		cmd.Env = append(append(os.Environ(), patient...), "ADBUFFER_SERVER_LISTEN="+row.listen)
		cmd.Dir = "/"
		if os.Geteuid() == 0 { // who may everything
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%v: %s", err, out)
		}
		for _, w := range row.says {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s\ndoes not say %q", out, w)
			}
		}
	}
}
