package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// ListenerName is the host name of a listener with a certificate.
const ListenerName = "adbuffer.test"

// Authority signs the certificates of listeners and of their clients.
type Authority struct {
	*sspsim.CA
	t   testing.TB
	Dir string // cert.pem and key.pem of a listener, ca.pem
}

// NewAuthority makes an authority and the certificate of a listener.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	a := &Authority{ca, t, t.TempDir()}
	a.Renew()
	a.Replace("ca.pem", string(ca.PEM()))
	return a
}

// File returns the path of a file in the authority's folder.
func (a *Authority) File(name string) string { return filepath.Join(a.Dir, name) }

// Renew writes a new certificate and key of the listener.
func (a *Authority) Renew() {
	a.t.Helper()
	pair, err := a.ServerCert("localhost", ListenerName, "127.0.0.1")
	testsupport.NoError(a.t, err)
	cert, key := testsupport.PEM(a.t, pair)
	a.Replace("cert.pem", cert)
	a.Replace("key.pem", key)
}

// Replace writes a file in one step.
func (a *Authority) Replace(name, content string) {
	a.t.Helper()
	replaceFile(a.t, a.File(name), content)
}

// replaceFile writes a file in one step.
func replaceFile(t testing.TB, file, content string) {
	t.Helper()
	testsupport.NoError(t, errors.Join(os.WriteFile(file+".new", []byte(content), 0o600), os.Rename(file+".new", file)))
}

// ClientConfig is the configuration of a client that trusts the authority and offers these
// protocols. by signs the client's certificate; nil means no certificate.
func (a *Authority) ClientConfig(by *Authority, protocols ...string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.Pool(), ServerName: ListenerName, NextProtos: protocols}
	if by != nil {
		cert, err := by.ClientCert("ops")
		testsupport.NoError(a.t, err)
		// The client sends it also if the listener asks for a certificate of another authority.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return c
}

// ServerSection is the configuration's section server with the listener's certificate, the given settings
// of the section, and those of its tls. Each begins with a comma.
func (a *Authority) ServerSection(settings string, ofTLS ...string) string {
	return fmt.Sprintf("server: {tls: {cert_file: %q, key_file: %q%s}%s}\n", a.File("cert.pem"), a.File("key.pem"), strings.Join(ofTLS, ""), settings)
}

// SSPSection is the section tls of an SSP, for which the listener's certificate is the client
// certificate.
func (a *Authority) SSPSection() string {
	return fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", a.File("cert.pem"), a.File("key.pem"))
}

// ReadFile returns the content of a file.
func ReadFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	testsupport.NoError(t, err)
	return string(b)
}
