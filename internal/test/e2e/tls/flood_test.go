package tls

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// A client replays a ClientHello that asks for a long computation, P-521, on 60 connections at once, and never
// finishes a handshake. A new client of the same address is served after few of these hellos. In the order of
// arrival, each of its two turns would come after all 60 of them.
func TestNewClientsAreServedAmongReplayedHellos(t *testing.T) {
	t.Parallel()
	a := e2e.NewAuthority(t)
	admin := fmt.Sprintf("admin: {tls: {cert_file: %q, key_file: %q}}\n", a.File("cert.pem"), a.File("key.pem"))
	ab := e2e.Launch(t, e2e.Patient(), "serve", "--config", e2e.WriteConfig(t, a.ServerSection("")+admin+e2e.Single(e2e.Healthy(t).URL())))
	ab.AdminTLS = a.ClientConfig(nil)
	ab.AwaitReady()
	for name, addr := range map[string]string{"client": ab.TrafficAddr, "admin": ab.AdminAddr} {
		flood := startFlood(addr, 60)
		testsupport.Eventually(t, "hellos get responses", func() bool { return flood.responses.Load() > 30 })
		const clients = 10
		before := flood.responses.Load()
		for range clients {
			conn, err := tls.Dial("tcp", addr, a.ClientConfig(nil))
			testsupport.NoError(t, err)
			conn.Close()
		}
		between := flood.responses.Load() - before
		flood.end()
		// Each of a handshake's two turns waits for the hello that is being computed, and for one of each
		// of the flood's eight queues at worst.
		testsupport.True(t, between <= 20*clients, "%s: %d hellos of the flood were computed during %d handshakes, want at most 20 for each", name, between, clients)
		used := ab.Scrape().Value("adbuffer_background_cpu_seconds_total", "work="+name+"_handshake")
		testsupport.True(t, used > 0, "%s: the handshakes used no CPU", name)
	}
}

// flood replays a hello on connections that it opens again and again.
type flood struct {
	responses atomic.Int64 // connections that got the first bytes of one
	stopped   atomic.Bool
	all       sync.WaitGroup
}

func startFlood(addr string, connections int) *flood {
	f := new(flood)
	hello := costlyHello()
	for range connections {
		f.all.Go(func() {
			for !f.stopped.Load() {
				f.replay(addr, hello)
			}
		})
	}
	return f
}

func (f *flood) replay(addr string, hello []byte) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testsupport.Patience))
	c.Write(hello)
	if n, _ := c.Read(make([]byte, 1)); n > 0 {
		f.responses.Add(1)
	}
}

func (f *flood) end() {
	f.stopped.Store(true)
	f.all.Wait()
}

// costlyHello returns the record of a ClientHello whose only group is P-521.
func costlyHello() []byte {
	var s recordedSocket
	tls.Client(&s, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.CurveP521}}).Handshake()
	b := s.sent.Bytes()
	return b[:5+int(b[3])<<8+int(b[4])]
}

// recordedSocket keeps what is written, and has nothing to read.
type recordedSocket struct {
	net.Conn
	sent bytes.Buffer
}

func (s *recordedSocket) Write(b []byte) (int, error)      { return s.sent.Write(b) }
func (s *recordedSocket) Read([]byte) (int, error)         { return 0, io.EOF }
func (s *recordedSocket) Close() error                     { return nil }
func (s *recordedSocket) SetWriteDeadline(time.Time) error { return nil }
