package tls

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
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
	testsupport.NoError(ab.T, err)
	k.Close()
	return cert.SerialNumber.String()
}

func TestCertificatesAreReloadedWhileClientsComeAndGo(t *testing.T) {
	t.Parallel()
	s, a := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, a.ServerSection("")+e2e.Single(s.URL()))
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
			time.Sleep(10 * time.Millisecond)
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
		a.Replace("cert.pem", content)
		ab.AwaitMetric(0, "adbuffer_tls_certificate_reload_successful", "listener=server")
		testsupport.Eventually(t, "the log names the file", func() bool {
			return slices.ContainsFunc(ab.Log.Lines(message)[known:], func(line map[string]any) bool {
				text, _ := line["error"].(string)
				return strings.Contains(text, a.File("cert.pem")) && line["listener"] == "server"
			})
		})
		testsupport.Equal(t, serial(ab, a), before, "the certificate is another: %v")
		a.Replace("cert.pem", good)
		ab.AwaitMetric(1, "adbuffer_tls_certificate_reload_successful", "listener=server")
	}
	stop.Store(true)
	if err := <-comers; err != nil {
		t.Errorf("a client was refused meanwhile: %v", err)
	}
	kept.Get("/fillbuffer").WantFill("openx")
	kept.Close()
}
