//go:build !race

package sspsim

import (
	"math/rand/v2"
	"net"
	"testing"
)

// adRequest resembles the request of an application: 800 bytes.
var adRequest = []byte("GET /bid?cb=1234567890&pub=4711&slot=top&w=300&h=250&ref=https%3A%2F%2Fnews.example%2Fa%2Flong%2Fpath%2Fto%2Fan%2Farticle HTTP/1.1\r\n" +
	"Host: ssp.example\r\nUser-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Mobile Safari/537.36\r\n" +
	"Accept: */*\r\nAccept-Language: de-DE,de;q=0.9,en;q=0.8\r\nX-Forwarded-For: 203.0.113.7\r\nX-Request-Id: 3f2c9a1e-7b7d-4f63-9d5e-1b2a3c4d5e6f\r\n" +
	"X-Consent: CPzHq4APzHq4AAHABBENDvCsAP_AAH_AAAAAJXNf_X__b2_r-_7_f_t0eY1P9_7__-0zjhfdl-8N3f_X_L8X52M7vF36tqoKuR4ku3LBIQdlHPHcTUmw6okVryPsbk2cr7NKJ7\r\n\r\n")

// loopConn is a peer that sends one request for each read, without end.
type loopConn struct {
	net.Conn
	written int
}

func (c *loopConn) Read(b []byte) (int, error)  { return copy(b, adRequest), nil }
func (c *loopConn) Write(b []byte) (int, error) { c.written += len(b); return len(b), nil }

func TestHTTP1RequestsAllocateNothing(t *testing.T) {
	for name, b := range map[string]Behaviour{
		"plain":  {},
		"echo":   {Response: Response{Echo: true, Size: Size{P50: 1000, P95: 4000, Max: 10_000}, NoBid: Share(0.3)}},
		"faults": {Response: Response{Chunked: Share(0.5), Cookies: Every(2)}, Faults: Faults{Status: Status{Chance: Share(0.1)}}},
	} {
		s := start(t, Options{Behaviour: b})
		peer := &loopConn{}
		h := newHTTP1Conn(&conn{ssp: s, rw: peer, rng: rand.New(rand.NewPCG(1, 1))})
		one := func() {
			if err := h.next(); err != nil || !h.respond() {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for range 100 { // so that the buffers grow first
			one()
		}
		if n := testing.AllocsPerRun(1000, one); n != 0 {
			t.Errorf("%s: %v allocations for a request, want none", name, n)
		}
		if peer.written == 0 {
			t.Errorf("%s: nothing was written", name)
		}
	}
}
