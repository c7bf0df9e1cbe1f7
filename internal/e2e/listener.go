package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// Listener is the certificate of a listener, in files, and its authority.
type Listener struct {
	CertFile, KeyFile, CAFile string
	*sspsim.CA
}

// ListenerName is the host name of a Listener.
const ListenerName = "adbuffer.test"

// NewListener makes an authority and its certificate for ListenerName and 127.0.0.1.
func NewListener(t testing.TB) *Listener {
	t.Helper()
	dir := t.TempDir()
	e := &Listener{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CAFile: filepath.Join(dir, "ca.pem")}
	var err error
	if e.CA, err = sspsim.NewCA(); err != nil {
		t.Fatal(err)
	}
	cert, err := e.ServerCert(ListenerName, "127.0.0.1")
	if err == nil {
		err = sspsim.WriteKeyPair(cert, e.CertFile, e.KeyFile)
	}
	if err == nil {
		err = e.WriteFile(e.CAFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ServerSection is the configuration's section server, with the given settings of it.
func (e *Listener) ServerSection(more string) string {
	return fmt.Sprintf("server: {tls: {cert_file: %q, key_file: %q}%s}\n", e.CertFile, e.KeyFile, more)
}

// DialTLS opens a connection over TLS.
func (ab *Process) DialTLS(config *tls.Config) *Client {
	ab.T.Helper()
	c := ab.Dial()
	tc := tls.Client(c.Conn, config)
	if err := tc.Handshake(); err != nil {
		ab.T.Fatalf("handshake: %v", err)
	}
	c.Conn = tc
	c.Reader.Reset(tc)
	return c
}

// TLSConfig is the configuration of a client that trusts the listener and offers these protocols.
func (e *Listener) TLSConfig(protocols ...string) *tls.Config {
	return &tls.Config{RootCAs: e.Pool(), ServerName: ListenerName, NextProtos: protocols}
}

// HTTP2Client is net/http's client, with HTTP/2 alone and a connection of its own.
func (e *Listener) HTTP2Client(t testing.TB) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: e.TLSConfig(), Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testsupport.Patience}
}

// Curl runs curl with the given options, and returns its standard output.
func (e *Listener) Curl(t *testing.T, ab *Process, options ...string) string {
	t.Helper()
	port := ab.TrafficAddr[strings.LastIndexByte(ab.TrafficAddr, ':')+1:]
	args := append([]string{"--silent", "--show-error", "--max-time", "60", "--cacert", e.CAFile, "--resolve", ListenerName + ":" + port + ":127.0.0.1"}, options...)
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "EDGE", "https://"+ListenerName+":"+port)
	}
	var complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "curl", args...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, &complaints)
	}
	return string(out)
}
