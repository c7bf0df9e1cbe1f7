package proxy_test

import (
	"crypto/tls"
	"io"
	"testing"

	"golang.org/x/net/http2"

	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// RFC 9113, section 9.2.2, prohibits HTTP/2 over these cipher suites.
func TestHTTP2OverAProhibitedCipherSuiteIsRefused(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, ads("a", 10))
	c, err := tls.Dial("tcp", m.addr(), &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test", NextProtos: []string{"h2"},
		MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}})
	testsupport.NoError(t, err)
	defer c.Close()
	io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	framer.WriteSettings()
	wantGoAway(t, c, framer, http2.ErrCodeInadequateSecurity)
	m.awaitError(1, "http2", "violation")
}
