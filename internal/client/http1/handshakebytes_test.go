package http1

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/handshake"
)

// holder is a Handler that adds up what handshakes hold.
type holder struct {
	notFound
	bytes *atomic.Int64
}

func (h holder) Hold(n int) { h.bytes.Add(int64(n)) }

// partOfHello returns the first n bytes of a ClientHello of 65535 bytes, in records of 16 KiB.
func partOfHello(n int) []byte {
	hello := append([]byte{1, 0, 0xff, 0xff}, make([]byte, 65535)...)
	var b []byte
	for len(b) < n {
		b = append(append(b, 22, 3, 1, 0x40, 0), hello[:1<<14]...)
		hello = hello[1<<14:]
	}
	return b[:n]
}

func newHolder(t *testing.T, maxBufferedBytes int64) (*Server, holder) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(t, err)
	o := tlsOptions(t, key)
	o.MaxBufferedBytes = maxBufferedBytes
	h := holder{bytes: new(atomic.Int64)}
	return New(h, o, zap.NewNop()), h
}

// sendHello connects, and sends n bytes of a ClientHello.
func sendHello(t *testing.T, addr string, n int) net.Conn {
	t.Helper()
	c := dial(t, addr)
	t.Cleanup(func() { c.Close() })
	_, err := c.Write(partOfHello(n))
	testsupport.NoError(t, err)
	return c
}

// isClosed reports whether the server closes c.
func isClosed(t *testing.T, c net.Conn) bool {
	t.Helper()
	testsupport.NoError(t, c.SetReadDeadline(time.Now().Add(testsupport.Patience)))
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// The bytes of a ClientHello count while the handshake waits for the rest. A hello of more than 24 KiB is
// refused.
func TestAClientHelloIsCountedAndBounded(t *testing.T) {
	s, h := newHolder(t, 1<<30)
	addr, end := serve(t, s)
	c := sendHello(t, addr, 24575)
	testsupport.Eventually(t, "24575 bytes count", func() bool { return h.bytes.Load() == 24575 })
	_, err := c.Write([]byte{0})
	testsupport.NoError(t, err)
	testsupport.True(t, isClosed(t, c), "a hello that is not complete after 24576 bytes is read")
	testsupport.Eventually(t, "none counts", func() bool { return h.bytes.Load() == 0 && s.memory.bytes.Load() == 0 })
	wantOneFailure(t, s, handshake.Invalid)

	whole, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	testsupport.NoError(t, err)
	whole.Close()
	testsupport.Eventually(t, "none counts", func() bool { return h.bytes.Load() == 0 })
	end()
}

// A server refuses the fourth large hello of 20 000 bytes if max_buffered_bytes is 512 KiB, and other clients get their
// handshake.
func TestHandshakesGoOnBesideLargeClientHellos(t *testing.T) {
	s, h := newHolder(t, 512<<10)
	addr, end := serve(t, s)
	var all []net.Conn
	for range 3 {
		all = append(all, sendHello(t, addr, 20_000))
	}
	testsupport.Eventually(t, "60000 bytes count", func() bool { return h.bytes.Load() == 60_000 })
	testsupport.True(t, isClosed(t, sendHello(t, addr, 20_000)), "a fourth large hello has room")
	testsupport.Eventually(t, "60000 bytes count", func() bool { return h.bytes.Load() == 60_000 })
	all = append(all, sendHello(t, addr, 8192))
	testsupport.Eventually(t, "a small hello counts too", func() bool { return h.bytes.Load() == 68_192 })
	whole, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	testsupport.NoError(t, err)
	whole.Close()
	for _, c := range all {
		c.Close()
	}
	testsupport.Eventually(t, "none counts", func() bool { return h.bytes.Load() == 0 })
	end()
}

// Unfinished handshakes hold at most an eighth of the memory for bodies and 8 KiB each.
func TestLargeClientHellosHoldAShareOfTheMemory(t *testing.T) {
	const maxBuffered = 512 << 10
	held := 0
	m, unbound := &handshakeMemory{hold: func(n int) { held += n }}, (*cpushare.Share)(nil)
	greets := func(n int) (*greeting, error) {
		g := &greeting{memory: m, turns: unbound.NewHandshake(cpushare.ClientHandshake, 0, nil)}
		return g, g.arrived(n, maxBuffered)
	}
	var all []*greeting
	for i, tt := range []struct {
		size    int
		refused bool
		held    int
	}{{20_000, false, 20_000}, {20_000, false, 40_000}, {25_536, false, 65_536}, {8193, true, 73_729}, {8192, false, 81_921}} {
		g, err := greets(tt.size)
		testsupport.True(t, errors.Is(err, handshake.ErrTooLarge) == tt.refused && (err == nil) != tt.refused, "hello %d of %d bytes: %v", i, tt.size, err)
		testsupport.Equal(t, held, tt.held, "%d bytes are held")
		all = append(all, g)
	}
	for _, g := range all {
		g.handshakeOver()
	}
	testsupport.Equal(t, held, 0, "%d bytes are held")
	_, err := greets(20_000)
	testsupport.NoError(t, err)
}
