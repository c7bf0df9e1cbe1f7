package failing

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// startFlaky runs a TCP proxy to addr that resets its first n connections when their first byte
// arrives.
func startFlaky(t *testing.T, addr string, n int64) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var accepted atomic.Int64
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if accepted.Add(1) <= n {
				client.Read(make([]byte, 1))
				client.(*net.TCPConn).SetLinger(0)
				client.Close()
				continue
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go copyAndClose(client, server)
			go copyAndClose(server, client)
		}
	}()
	return l.Addr().String()
}

func copyAndClose(to, from net.Conn) {
	io.Copy(to, from)
	to.Close()
	from.Close()
}

// Before, a failed handshake failed the requests that waited for it, although the next handshake
// would have worked.
func TestHandshakeThatFailsOnceFailsNoRequest(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	// With hybrid groups the dial itself repeats a lost ClientHello with a shorter one.
	ca := "tls: {server_name: localhost, groups: [x25519], ca_file: " + e2e.CAFile(t, s) + "}"

	// retry.max is 1 by default.
	ab := e2e.Start(t, e2e.Single("https://"+startFlaky(t, s.Addr(), 1)+"/bid", ca))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { ab.Post("/fillbuffer", "{}").WantFill("openx") })
	}
	wg.Wait()
	e2e.WantRequests(t, s, 50)
	ab.WantMetric(50, "adbuffer_ssp_requests_total", "outcome=fill")
	if n := ab.Metric("adbuffer_retries_total", "kind=not_sent"); n < 1 || n > 50 {
		t.Errorf("%v retries", n)
	}

	// Without retries a request fails with its dial. The address is dialled again
	// for the next one.
	ab = e2e.Start(t, e2e.Single("https://"+startFlaky(t, s.Addr(), 1)+"/bid", ca, "retry: {max: 0}"))
	ab.WantRefusal("the first", e2e.Refusal{Status: 502, Reason: "tls_failed", SSP: "openx", Names: []string{"connection reset"}},
		func() *e2e.Response { return ab.Get("/fillbuffer") })
	ab.Get("/fillbuffer").WantFill("openx")
}
