package limits

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// One SSP of five fails. Its requests get an error in time. Requests to the other SSPs get their
// responses.
func TestASickSSPCostsOnlyItsOwnRequests(t *testing.T) {
	t.Parallel()
	for _, sick := range []struct {
		name   string
		faults sspsim.Faults
		first  sspsim.Behaviour
	}{
		{name: "refuses", faults: sspsim.Faults{Refuse: true}},
		{name: "black-holes", faults: sspsim.Faults{BlackHole: true}},
		{name: "hangs after accept", faults: sspsim.Faults{Hang: sspsim.Always}},
		{name: "reads and does not respond", faults: sspsim.Faults{Stall: sspsim.Always}},
		{name: "resets", faults: sspsim.Faults{Reset: sspsim.Always}},
		{name: "half responses", faults: sspsim.Faults{CutBody: sspsim.Every(2), CutHead: sspsim.Always}},
		{name: "responds with 503", faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}},
		{name: "drips", faults: sspsim.Faults{Drip: sspsim.Drip{Chance: sspsim.Always}}},
	} {
		t.Run(sick.name, func(t *testing.T) {
			t.Parallel()
			config := "ssps:\n"
			routes := "routes:\n"
			for i := range 5 {
				b, connect := sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}, "10s"
				if i == 4 {
					b, connect = sspsim.Behaviour{Faults: sick.faults}, "250ms"
				}
				s := e2e.StartSSP(t, sspsim.Options{Behaviour: b})
				config += fmt.Sprintf("  - {name: s%d, endpoints: [%q], timeouts: {connect: %s}}\n", i, s.URL(), connect)
				routes += fmt.Sprintf("  - {name: s%[1]d, match: {path: /s%[1]d}, ssps: [s%[1]d]}\n", i)
			}
			ab := e2e.Start(t, config+routes)
			var others, own e2e.Tally
			began := time.Now()
			ab.Concurrently(20, func(w *e2e.Worker) error {
				ssp := w.Id % 5
				for time.Since(began) < 1500*time.Millisecond {
					field := "X-Adbuffer-Timeout-Ms: 20000"
					if ssp == 4 {
						field = "X-Adbuffer-Timeout-Ms: 150"
					}
					a, err := w.Exchange("GET", fmt.Sprintf("/s%d", ssp), "", field)
					if err != nil {
						return err
					}
					if ssp != 4 {
						others.Add(a)
						if a.Status != 200 {
							return fmt.Errorf("s%d: %d %s", ssp, a.Status, a.Body)
						}
						continue
					}
					own.Add(a)
					if a.Status < 500 {
						return fmt.Errorf("the sick SSP's request ended with %d", a.Status)
					}
					time.Sleep(5 * time.Millisecond)
				}
				return nil
			})
			others.Log(t, sick.name)
			own.Log(t, sick.name)
			if own.Total() == 0 || others.Total() == 0 {
				t.Error("no request was sent")
			}
		})
	}
}

// countingListener accepts each connection, holds it for a while, and resets it. It is like a
// refusing SSP, but can count the connections.
type countingListener struct {
	net.Listener
	dials      atomic.Int64
	open, most atomic.Int64
	wg         sync.WaitGroup
}

func startCounting(t testing.TB, hold time.Duration) *countingListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &countingListener{Listener: l}
	c.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.dials.Add(1)
			now := c.open.Add(1)
			for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
			}
			c.wg.Go(func() {
				go io.Copy(io.Discard, conn) //nolint:errcheck // it ends when the connection is closed
				time.Sleep(hold)
				c.open.Add(-1)                   // the RST may cause the next dial before Close returns
				conn.(*net.TCPConn).SetLinger(0) //nolint:errcheck,forcetypeassert // a RST instead of a FIN
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.wg.Wait()
	})
	return c
}

// Thousands of requests to an SSP that accepts no connection cause at most max_dials dials at once,
// and few in all.
func TestARefusingSSPIsDialledByMaxDialsAtOnceAndBacksOff(t *testing.T) {
	t.Parallel()
	l := startCounting(t, 20*time.Millisecond) // the TLS handshake fails in that time
	refusing := e2e.Failing(t, sspsim.Faults{Refuse: true})
	ab := e2e.Start(t, fmt.Sprintf(`
ssp_defaults: {pool: {max_dials: 4}}
ssps:
  - {name: resets, endpoints: ["https://%s/bid"], breaker: {enabled: false}}
  - {name: refuses, endpoints: [%q], breaker: {enabled: false}}
routes:
  - {name: resets, match: {path: /resets}, ssps: [resets]}
  - {name: refuses, match: {path: /refuses}, ssps: [refuses]}
`, l.Addr(), refusing.URL()))
	stop := watch(ab, "adbuffer_pool_connections")
	began := time.Now()
	for _, path := range []string{"/resets", "/refuses"} {
		var all e2e.Tally
		ab.Concurrently(50, func(w *e2e.Worker) error {
			for range 60 {
				a, err := w.Exchange("GET", path, "")
				if err != nil {
					return err
				}
				if all.Add(a); a.Status != 502 {
					return fmt.Errorf("%s: %d %s", path, a.Status, a.Body)
				}
			}
			return nil
		})
		all.Log(t, path)
	}
	took := time.Since(began)
	highest := stop()
	if n := highest[`adbuffer_pool_connections{protocol="unknown",ssp="resets",state="dialing"}`]; n > 4 {
		t.Errorf("%v dials were in progress at once, want at most max_dials, 4", n)
	}
	// The pause doubles from 100 ms, so the dials are few. The machine's speed decides how many.
	limit := 4 + int64(took/(50*time.Millisecond))
	t.Logf("in %v: %d dials to the SSP that resets, at most %d at once; %v to the SSP that refuses",
		took.Round(time.Millisecond), l.dials.Load(), l.most.Load(), ab.Metric("adbuffer_pool_dial_errors_total", "ssp=refuses", "kind=refused"))
	if l.most.Load() > 4 || l.dials.Load() == 0 || l.dials.Load() > limit {
		t.Errorf("%d dials, %d at once; want at most %d, and 4 at once", l.dials.Load(), l.most.Load(), limit)
	}
	if n := ab.Metric("adbuffer_pool_dial_errors_total", "ssp=refuses", "kind=refused"); n == 0 || n > float64(limit) {
		t.Errorf("%v dials were refused, want at most %d", n, limit)
	}
}

// A cold start under load dials at most the allowed number of HTTP/2 connections, and all requests
// get a response.
func TestAColdStartDialsNoMoreThanMaxHTTP2Conns(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}})
	ab := e2e.Start(t, e2e.Single(s.URL(), e2e.Trust(t, s), "pool: {max_pending: 600}"))
	var all e2e.Tally
	ab.Concurrently(600, func(w *e2e.Worker) error {
		a, err := w.Exchange("GET", "/fillbuffer", "")
		if err == nil {
			all.Add(a)
		}
		return err
	})
	all.Log(t, "cold start")
	if n := all.Of("ssp/openx 200"); n != 600 {
		t.Errorf("%d of 600 got a response", n)
	}
	if n := s.Counters().Connections; n > 4 {
		t.Errorf("%d connections were opened, want at most max_http2_conns, 4", n)
	}
}
