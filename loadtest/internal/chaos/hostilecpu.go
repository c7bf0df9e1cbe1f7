package chaos

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"

	"adbuffer/internal/test/sspsim"
)

// cpuAttacks cost adbuffer CPU, or occupy its connections, without a request that reaches a healthy SSP.
var cpuAttacks = []attack{
	{name: "replays a ClientHello with P-521", conns: 100, bare: true, do: func(h *hostile) {
		h.reopen(200*time.Millisecond, func(conn net.Conn) {
			_, _ = conn.Write(expensiveHello())
			_, _ = io.Copy(io.Discard, conn)
		})
	}},
	{name: "shows a long chain of certificates", conns: 4, bare: true, guarded: true, do: func(h *hostile) {
		h.reopen(400*time.Millisecond, func(conn net.Conn) {
			c := tls.Client(conn, h.run.longChain)
			if c.Handshake() == nil {
				_, _ = io.Copy(io.Discard, c) // the alert
			}
		})
	}},
	{name: "reopens all places", conns: guardedConnections, bare: true, do: func(h *hostile) {
		h.reopen(50*time.Millisecond, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	}},
	{name: "scrapes 100 times a second", conns: 4, bare: true, do: func(h *hostile) {
		h.untilEnd(40*time.Millisecond, func() { _, _ = h.st.process.Load().Ask("/metrics") })
	}},
	{name: "sends gzip that decodes to nothing", conns: 4, do: func(h *hostile) {
		body := sspsim.GzipHeader + strings.Repeat(sspsim.EmptyBlock, 50_000)
		h.untilEnd(40*time.Millisecond, func() {
			a := h.drawPart(0)
			a.broken = "a-gzip-body-of-nothing"
			h.ask(fmt.Appendf(nil, "POST /read?%s HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", a.query(), len(body), body))
		})
	}},
	{name: "asks an SSP whose gzip decodes to nothing", conns: 4, do: func(h *hostile) {
		h.repeat(40*time.Millisecond, func(a *request) { a.method, a.path, a.body = "POST", "/merged", requestBody(a.token, 200) })
	}},
	{name: "asks an SSP with a long chain of certificates", conns: 4, do: func(h *hostile) {
		h.repeat(40*time.Millisecond, func(a *request) { a.path = "/chain" })
	}},
}

// reopen opens connections, one after the other, until the attack ends. It closes each connection by RST after keep, and
// opens the next one afterwards. Every second client connects to the admin listener, if that has TLS.
func (h *hostile) reopen(keep time.Duration, use func(conn net.Conn)) {
	addr, d := h.st.addr, dialer(h.LocalAddr().(*net.TCPAddr).IP)
	if h.st.guarded && h.n%2 == 0 {
		addr = h.st.admin
	}
	h.untilEnd(keep, func() {
		conn, err := d.Dial("tcp", addr)
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(keep))
		use(conn)
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
}

// expensiveHello returns a ClientHello with a P-521 key share. The server needs twenty times the usual CPU for it; a client
// that replays it needs none.
var expensiveHello = sync.OnceValue(func() []byte {
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "127.0.0.1", CurvePreferences: []tls.CurveID{tls.CurveP521}}).Handshake()
	}()
	hello := make([]byte, 4096)
	n, err := far.Read(hello) // one record, which is one write
	far.Close()
	if err != nil {
		panic(fmt.Sprintf("BUG: a TLS client sent no ClientHello: %v", err))
	}
	return hello[:n]
})

// extraCertificates is how many authorities follow the leaf of a long chain.
const extraCertificates = 98

// sameNamed returns certificates of authorities that have the name of sspsim's authority and a key on P-521. A verifier
// tries all of them as the issuer of a leaf.
func sameNamed() (ders [][]byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	for i := 0; i < extraCertificates && err == nil; i++ {
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i)), Subject: pkix.Name{CommonName: "sspsim CA"}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour)}
		var der []byte
		der, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		ders = append(ders, der)
	}
	return ders, err
}
