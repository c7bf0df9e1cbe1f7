package tls

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// tryTLS opens a connection with TLS and sends a request. With TLS 1.3, only the read shows that a
// listener refuses a client's certificate.
func tryTLS(ab *e2e.Process, config *tls.Config) (*e2e.Client, *x509.Certificate, error) {
	raw, err := net.DialTimeout(ab.Network, ab.TrafficAddr, testsupport.Patience)
	if err != nil {
		return nil, nil, err
	}
	raw.SetDeadline(time.Now().Add(testsupport.Patience))
	c := tls.Client(raw, config)
	k := &e2e.Client{T: ab.T, Conn: c, Reader: bufio.NewReader(c)}
	if err = c.Handshake(); err == nil {
		if _, err = c.Write([]byte(e2e.Request("GET", "/fillbuffer", ""))); err == nil {
			_, err = k.TryRead("GET")
		}
	}
	if err != nil {
		raw.Close()
		return nil, nil, err
	}
	return k, c.ConnectionState().PeerCertificates[0], nil
}

// serial is the serial number of the certificate that a new client receives.
func serial(ab *e2e.Process, a *e2e.Authority) string {
	ab.T.Helper()
	k, cert, err := tryTLS(ab, a.ClientConfig(a))
	if err != nil {
		ab.T.Fatal(err)
	}
	k.Close()
	return cert.SerialNumber.String()
}

func TestCertificatesAreReloadedWhileClientsComeAndGo(t *testing.T) {
	t.Parallel()
	s, a := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, a.TLSSection("")+e2e.Single(s.URL()))
	before := serial(ab, a)
	kept, _, err := tryTLS(ab, a.ClientConfig(nil))
	testsupport.NoError(t, err)
	var stop atomic.Bool
	comers := make(chan error)
	go func() {
		for !stop.Load() {
			k, _, err := tryTLS(ab, a.ClientConfig(nil))
			if err != nil {
				comers <- err
				return
			}
			k.Close()
		}
		comers <- nil
	}()
	for range 2 {
		a.Renew()
		testsupport.Eventually(t, "new clients see the new certificate", func() bool { return serial(ab, a) != before })
		before = serial(ab, a)
		kept.Get("/fillbuffer").WantFill("openx")
	}
	ab.AwaitMetric(1, "adbuffer_tls_certificate_reload_successful", "listener=server")
	if at := ab.Metric("adbuffer_tls_certificate_expiry_timestamp_seconds", "listener=server"); time.Until(time.Unix(int64(at), 0)) < time.Hour {
		t.Errorf("the certificate expires at %v", at)
	}

	// The certificate is first broken and then belongs to another key. Only the metric and the log
	// change.
	for _, content := range []string{"-----BEGIN CERTIFICATE-----\nbroken", e2e.ReadFile(t, e2e.NewAuthority(t).File("cert.pem"))} {
		good := e2e.ReadFile(t, a.File("cert.pem"))
		const message = "the certificates stay as they are: their files are not valid"
		known := len(ab.Log.Lines(message)) // a renewal may have been read between its two files
		a.Replace("cert.pem", []byte(content))
		ab.AwaitMetric(0, "adbuffer_tls_certificate_reload_successful", "listener=server")
		testsupport.Eventually(t, "the log names the file", func() bool {
			return slices.ContainsFunc(ab.Log.Lines(message)[known:], func(line map[string]any) bool {
				text, _ := line["error"].(string)
				return strings.Contains(text, a.File("cert.pem")) && line["listener"] == "server"
			})
		})
		testsupport.Equal(t, serial(ab, a), before, "the certificate is another: %v")
		a.Replace("cert.pem", []byte(good))
		ab.AwaitMetric(1, "adbuffer_tls_certificate_reload_successful", "listener=server")
	}
	stop.Store(true)
	if err := <-comers; err != nil {
		t.Errorf("a client was refused meanwhile: %v", err)
	}
	kept.Get("/fillbuffer").WantFill("openx")
	kept.Close()
}

func TestTheAuthorityOfClientsIsReloadedToo(t *testing.T) {
	t.Parallel()
	s, a, other := e2e.Healthy(t), e2e.NewAuthority(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, a.TLSSection(fmt.Sprintf(", client_ca_file: %q", a.File("ca.pem")))+e2e.Single(s.URL()))
	let := func(by *e2e.Authority) bool {
		k, _, err := tryTLS(ab, a.ClientConfig(by))
		if err == nil {
			k.Close()
		}
		return err == nil
	}
	if !let(a) || let(other) || let(nil) {
		t.Errorf("accepted: a client of the authority %v, of another authority %v, without a certificate %v", let(a), let(other), let(nil))
	}
	a.Replace("ca.pem", other.PEM())
	testsupport.Eventually(t, "the other authority's clients are accepted", func() bool { return let(other) })
	testsupport.True(t, !let(a) && !let(nil), "still accepted: of the previous authority %v, without a certificate %v", let(a), let(nil))
}

// The error for a file or socket without permission contains its name.
func TestPermissionErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	a := e2e.NewAuthority(t)
	file := a.File("adbuffer.yaml")
	config := a.TLSSection("") + e2e.Single("http://127.0.0.1:1/")
	locked := a.File("locked")
	for _, err := range []error{
		os.WriteFile(file, []byte(config), 0o644), //nolint:gosec // the other user must read it
		os.WriteFile(a.File("plain.yaml"), []byte(e2e.Single("http://127.0.0.1:1/")), 0o644),
		os.Chmod(a.File("cert.pem"), 0o644), os.Chmod(a.File("key.pem"), 0), os.Mkdir(locked, 0o555),
		os.Chmod(filepath.Dir(a.Dir), 0o711), os.Chmod(a.Dir, 0o711), os.Chmod(filepath.Dir(e2e.Binary(t)), 0o711), //nolint:gosec // as above
	} {
		testsupport.NoError(t, err)
	}
	for _, row := range []struct {
		file, listen string
		says         []string
	}{
		{file, "127.0.0.1:0", []string{"server.tls.key_file", a.File("key.pem"), "permission denied"}},
		{a.File("plain.yaml"), "unix:" + locked + "/ad.sock", []string{"server.listen", "permission denied", "may not create files in " + locked}},
	} {
		cmd := e2e.Command(t, append(e2e.Patient(), "ADBUFFER_SERVER_LISTEN="+row.listen), "serve", "--config", row.file)
		cmd.Dir = "/"
		if os.Geteuid() == 0 { // root can read the file
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		testsupport.True(t, err != nil && cmd.ProcessState.ExitCode() == 1, "%v: %s", err, out)
		for _, w := range row.says {
			testsupport.True(t, strings.Contains(string(out), w), "%s\ndoes not contain %q", out, w)
		}
	}
}
