package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os/exec"
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

// NewListener makes an authority and its certificate for ListenerName, localhost and 127.0.0.1.
func NewListener(t testing.TB) *Listener {
	t.Helper()
	a := NewAuthority(t)
	return &Listener{CertFile: a.File("cert.pem"), KeyFile: a.File("key.pem"), CAFile: a.File("ca.pem"), CA: a.CA}
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
