package http1

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
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/handshake"
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
	o, places := tlsOptions(t, key), cpuPlaces()
	o.CPU = cpushare.New(0.25, time.Hour)
	s := New(notFound{}, o, zap.NewNop())
	addr, end := serve(t, s)
	// The clients stall at each moment when the server waits for them. They are more than the
	// places of the share.
	for range places + 3 {
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
	testsupport.AtMost(t, key.most.Load(), int64(places), "%d handshakes signed at once, want %d at the most")
	end()
	occupy(t, o.CPU, places)()
}

// cpuPlaces returns how many handshakes may compute at once: one for two cores.
func cpuPlaces() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// occupy acquires n places of a share, and returns a function that releases them.
func occupy(t *testing.T, share *cpushare.Share, n int) (release func()) {
	t.Helper()
	turns := make([]cpushare.Turn, n)
	for i := range turns {
		var err error
		turns[i], err = share.Acquire(cpushare.ClientHandshake, 0, time.Now())
		testsupport.NoError(t, err)
	}
	return func() {
		for i := range turns {
			turns[i].Release()
		}
	}
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
	o.CPU = cpushare.New(0.25, time.Hour)
	release := occupy(t, o.CPU, cpuPlaces())
	s := New(notFound{}, o, zap.NewNop())
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
		return hellos.Load() == places && s.memory.bytes.Load() == sent.Load()
	})
	c := dial(t, addr)
	if _, err := io.Copy(io.Discard, c); err != nil { // it is refused
		t.Error(err)
	}
	release()
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

func TestAHandshakeWithoutATurnTimesOut(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(t, err)
	o := tlsOptions(t, private)
	o.ReadTimeout = 50 * time.Millisecond
	o.CPU = cpushare.New(0.25, time.Hour)
	release := occupy(t, o.CPU, cpuPlaces())
	s := New(notFound{}, o, zap.NewNop())
	addr, end := serve(t, s)
	c := tls.Client(dial(t, addr), &tls.Config{InsecureSkipVerify: true})
	defer c.Close()
	testsupport.True(t, c.Handshake() != nil, "a handshake without a turn succeeded")
	wantOneFailure(t, s, handshake.Timeout)
	release()
	end()
}

// wantOneFailure waits until one handshake has failed for this reason, and checks that none failed for another one.
func wantOneFailure(t *testing.T, s *Server, reason handshake.Reason) {
	t.Helper()
	testsupport.Eventually(t, "a handshake fails", func() bool { return s.failures[reason].Load() == 1 })
	for r := range s.failures {
		testsupport.True(t, r == int(reason) || s.failures[r].Load() == 0, "%d handshakes failed for reason %d, want reason %d", s.failures[r].Load(), r, reason)
	}
}

// This measures a request on a kept connection while 300 clients do RSA handshakes as fast as they
// can, with and without the limiter.
func BenchmarkRequestDuringHandshakes(b *testing.B) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testsupport.NoError(b, err)
	for _, row := range []struct {
		name  string
		share *cpushare.Share
	}{{"limited", cpushare.New(0.25, time.Hour)}, {"all at once", nil}} {
		b.Run(row.name, func(b *testing.B) {
			o := tlsOptions(b, key)
			o.CPU = row.share
			s := New(notFound{}, o, zap.NewNop())
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
			for s.versions[1].Load() < 10 { // of TLS 1.3
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
