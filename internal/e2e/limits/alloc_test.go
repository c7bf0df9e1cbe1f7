//go:build !race

package limits

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// mallocs returns how many objects the process has allocated. The gauge in /metrics is not exact
// enough: it lacks allocations that the cores have not reported yet.
func mallocs(ab *e2e.Process) float64 {
	ab.T.Helper()
	_, text := ab.AskAdmin("/debug/pprof/allocs?debug=1")
	_, rest, _ := strings.Cut(text, "\n# Mallocs = ")
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		ab.T.Fatalf("Mallocs: %v in %s", err, testsupport.Tail(text, 2000))
	}
	return n
}

// allocsPer sends n requests from each of some clients, on kept connections. It returns the
// allocations of the process for each request.
func allocsPer(ab *e2e.Process, clients, n int, method, target, body string) float64 {
	ab.T.Helper()
	workers := make([]*e2e.Worker, clients)
	for i := range workers {
		workers[i] = &e2e.Worker{Process: ab, Id: i}
		defer workers[i].Close()
	}
	send := func(n int) {
		ab.Concurrently(clients, func(w *e2e.Worker) error {
			for range n {
				a, err := workers[w.Id].Exchange(method, target, body, "User-Agent: Mozilla/5.0 (Linux; Android 14)", "Accept: */*", "X-Forwarded-For: 203.0.113.77")
				if err != nil {
					return err
				}
				if a.Status != 200 {
					a.WantStatus(method+" "+target, 200)
				}
			}
			return nil
		})
	}
	send(n / 4) // this fills caches and pools
	mallocs(ab) // the first requests allocate more
	first := mallocs(ab)
	before := mallocs(ab)
	send(n)
	after := mallocs(ab)
	asking := before - first
	return (after - before - asking) / float64(n*clients)
}

// This test is not parallel. Load of other processes makes the garbage collector empty the pools of
// buffers more often for each request.
func TestAllocationsOfAForwardedRequest(t *testing.T) {
	testsupport.Long(t)
	for _, row := range []struct {
		name     string
		options  sspsim.Options
		settings []string
		ceiling  float64 // for a GET; for a POST fasthttp makes one more, to check whether its body was read whole
	}{
		{"http1", sspsim.Options{}, []string{"protocol: http1"}, 0},
		{"pipelined", sspsim.Options{}, []string{"protocol: http1-pipelined", "pool: {pipeline_methods: all}"}, 0},
		{"http1 over TLS", sspsim.Options{Protocol: sspsim.TLSHTTP1}, nil, 1},
		{"http2 over TLS", sspsim.Options{Protocol: sspsim.TLSHTTP2}, nil, 2},
		{"h2c", sspsim.Options{Protocol: sspsim.H2C}, []string{"protocol: h2c"}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := row.options
			o.Behaviour.Response.Size.Constant = 1024
			s := e2e.StartSSP(t, o)
			settings := row.settings
			if s.CA() != nil {
				settings = append(settings, e2e.Trust(t, s))
			}
			ab := e2e.Start(t, e2e.Single(s.URL(), settings...))
			for clients, n := range map[int]int{1: 8000, 16: 20000 / 16} { // one client is slow
				for _, method := range []string{"GET", "POST"} {
					body := ""
					if method == "POST" {
						body = e2e.BidRequest()
					}
					got := allocsPer(ab, clients, n, method, "/fillbuffer?pub=1&slot=top&cb=1", body)
					t.Logf("%-16s %2d clients, %-4s %.3f allocations for each request", row.name, clients, method, got)
					ceiling := row.ceiling
					if method == "POST" {
						ceiling++
					}
					// The process also allocates for timers, goroutines and scrapes. These
					// allocations are spread over the requests; a busy machine has more of them.
					if got > ceiling+0.05 {
						t.Errorf("%d clients, %s: %.3f allocations for each request, want at most %v", clients, method, got, ceiling)
					}
				}
			}
		})
	}
}

func TestAllocationsOfParallelAllOverFourSSPs(t *testing.T) {
	var urls []any
	for range 4 {
		urls = append(urls, e2e.StartSSP(t, sspsim.Options{}).URL())
	}
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%q]}
  - {name: b, endpoints: [%q]}
  - {name: c, endpoints: [%q]}
  - {name: d, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, mode: parallel-all, ssps: [a, b, c, d]}
`, urls...))
	got := allocsPer(ab, 4, 2500, "POST", "/fillbuffer", e2e.BidRequest())
	t.Logf("%.2f allocations for each request", got)
	if got >= 12 {
		t.Errorf("%.2f allocations for each request, want fewer than 12", got)
	}
}
