package e2e

import (
	"bytes"
	"crypto/tls"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
)

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

// Curl runs curl with the given options, and returns its standard output.
func (a *Authority) Curl(t *testing.T, ab *Process, options ...string) string {
	t.Helper()
	port := ab.TrafficAddr[strings.LastIndexByte(ab.TrafficAddr, ':')+1:]
	args := append([]string{"--silent", "--show-error", "--max-time", "60", "--cacert", a.File("ca.pem"), "--resolve", ListenerName + ":" + port + ":127.0.0.1"}, options...)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "EDGE", "https://"+ListenerName+":"+port)
	}
	var complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), testsupport.Needs(t, "curl", "curl"), args...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, &complaints)
	}
	return string(out)
}
