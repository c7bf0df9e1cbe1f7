package http1server

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/handshake"
	"adbuffer/internal/testsupport"
)

// countingKey counts how many signatures are made at once.
type countingKey struct {
	crypto.Signer
	now, most atomic.Int64
}

func (k *countingKey) Sign(random io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	n := k.now.Add(1)
	defer k.now.Add(-1)
	for m := k.most.Load(); n > m && !k.most.CompareAndSwap(m, n); m = k.most.Load() {
	}
	time.Sleep(time.Millisecond) // so that other handshakes arrive meanwhile
	return k.Signer.Sign(random, digest, o)
}

// tlsOptions returns the options of a Server with a certificate for key.
func tlsOptions(tb testing.TB, key crypto.Signer) Options {
	return Options{
		MaxConnections: 1000, MaxStreams: 250, MaxHeaderBytes: 1024, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{testsupport.CertificateUntil(time.Now().Add(time.Hour), key)}},
	}
}

func TestHandshakesComputeWithinTheLimitAndWaitForNoClient(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(t, err)
	key := &countingKey{Signer: private}
	s := New(notFound{}, tlsOptions(t, key), zap.NewNop())
	s.handshakeLimiter = make(handshakeLimiter, 2)
	addr, end := serve(t, s)
	// The clients stall at each moment when the server waits for them. They are more than the
	// limiter's places.
	for range 5 {
		stalled := dial(t, addr)
		defer stalled.Close()
		halfway := tls.Client(stallsAfter{stalled}, &tls.Config{InsecureSkipVerify: true})
		testsupport.MustTrue(t, halfway.Handshake() != nil, "it did not stall")
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			config := &tls.Config{InsecureSkipVerify: true}
			switch i % 3 {
			case 1: // the server asks for another key share
				config.CurvePreferences = []tls.CurveID{tls.CurveP521, tls.CurveP256}
			case 2:
				config.MaxVersion = tls.VersionTLS12
			}
			c := tls.Client(dial(t, addr), config)
			defer c.Close()
			if err := c.Handshake(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	testsupport.AtMost(t, key.most.Load(), 2, "%d handshakes signed at once, want 2 at the most")
	end()
	testsupport.Equal(t, len(s.handshakeLimiter), 0, "%d places of the limiter were not released")
}

// stallsAfter is a connection whose client sends a ClientHello and no more bytes.
type stallsAfter struct{ net.Conn }

func (c stallsAfter) Read(b []byte) (int, error) {
	if n, err := c.Conn.Read(b); err != nil { // the server has responded
		return n, err
	}
	return 0, io.ErrClosedPipe
}

// A client makes no room for others while adbuffer has its ClientHello and no time to respond.
func TestAHandshakeThatWaitsForAdbufferMakesNoRoom(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(t, err)
	const places = 3
	var hellos, sent atomic.Int64
	o := tlsOptions(t, private)
	o.MaxConnections = places
	s := New(notFound{}, o, zap.NewNop())
	s.handshakeLimiter = make(handshakeLimiter, 1)
	s.handshakeLimiter <- struct{}{}
	addr, end := serve(t, s)
	var wg sync.WaitGroup
	for range places {
		wg.Go(func() {
			raw, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer raw.Close()
			c := tls.Client(counts{raw, &hellos, &sent}, &tls.Config{InsecureSkipVerify: true})
			if err := c.Handshake(); err != nil {
				t.Error(err)
			}
		})
	}
	testsupport.Eventually(t, "all handshakes wait", func() bool {
		return hellos.Load() == places && s.traffic.Received() == uint64(sent.Load())
	})
	c := dial(t, addr)
	if _, err := io.Copy(io.Discard, c); err != nil { // it is refused
		t.Error(err)
	}
	s.handshakeLimiter.release()
	wg.Wait()
	end()
}

// counts counts writes and their bytes.
type counts struct {
	net.Conn
	writes, bytes *atomic.Int64
}

func (c counts) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	c.writes.Add(1)
	return n, err
}

func TestHandshakeLimiterWaitsUntilTheDeadline(t *testing.T) {
	l := make(handshakeLimiter, 1)
	l <- struct{}{}
	if err := l.acquire(time.Now().Add(10 * time.Millisecond)); handshake.ReasonOf(err) != handshake.Timeout {
		t.Errorf("a place of a full limiter: %v", err)
	}
	l.release()
	err := l.acquire(time.Now())
	testsupport.True(t, err == nil, "a free place: %v", err)
}

// This measures a request on a kept connection while 300 clients do RSA handshakes as fast as they
// can, with and without the limiter.
func BenchmarkRequestDuringHandshakes(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testsupport.NoError(b, err)
	for _, row := range []struct {
		name    string
		limiter handshakeLimiter
	}{{"limited", newHandshakeLimiter()}, {"all at once", make(handshakeLimiter, 1000)}} {
		b.Run(row.name, func(b *testing.B) {
			s := New(notFound{}, tlsOptions(b, key), zap.NewNop())
			s.handshakeLimiter = row.limiter
			addr, end := serve(b, s)
			config := &tls.Config{InsecureSkipVerify: true}
			kept, err := tls.Dial("tcp", addr, config)
			testsupport.NoError(b, err)
			defer kept.Close()
			var stop atomic.Bool
			var others sync.WaitGroup
			for range 300 {
				others.Go(func() {
					for !stop.Load() {
						if c, err := tls.Dial("tcp", addr, config); err == nil {
							c.Close()
						}
					}
				})
			}
			for full, _, _ := s.handshakes.Totals(); full < 10; full, _, _ = s.handshakes.Totals() {
				time.Sleep(time.Millisecond)
			}
			r := bufio.NewReader(kept)
			for b.Loop() {
				if _, err := io.WriteString(kept, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
					b.Fatal(err)
				}
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
			}
			stop.Store(true)
			others.Wait()
			end()
		})
	}
}
