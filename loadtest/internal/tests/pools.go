package tests

import (
	"context"
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// modest is the highest rate, in requests a second, at which the cores are not the limit.
const modest = 2000

// pools compares adbuffer with Little's law: N places of an SSP with latency X carry N / X requests a
// second, until a core is full.
func pools(e *stage.Env) *stage.Test {
	sizes, latencies := []int{100, 200, 500, 1000, 2000}, []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second}
	if e.Scale < 0.5 {
		sizes, latencies = []int{100, 500, 2000}, []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}
	}
	t := &stage.Test{Kind: "pools", Title: "Pools, their size, and the SSP's latency", Question: "How many places must a pool have, and what happens without one?",
		Notes: []string{"As many clients as places send as fast as responses come, to a pool whose connections are open before. TLS handshakes are those during the measurement.",
			"h2 has its places on four connections. Without a pool, every request has a connection of its own to the SSP."},
		Tables: []stage.Table{
			{Title: "as many clients as places", Heads: []string{"upstream", "places N", "latency X"},
				Columns: []stage.Column{{Head: "N / X per s", Value: "expected"}, {Head: "measured per s", Value: "rate"}, {Head: "of N / X", Value: "rate / expected", As: "%"}, {Head: "p50 ms", Value: "p50"}, {Head: "p99 ms", Value: "p99"},
					{Head: "open connections", Value: "ssp.open"}, {Head: "TLS handshakes", Value: "ssp.handshakes"}, {Head: "adbuffer memory", Value: "rss", As: "MiB"}}},
			{Title: "a queue that overflows", Group: "overflow", Heads: []string{"places", "queue", "requests at once"},
				Columns: []stage.Column{{Head: "answered", Value: "answered"}, {Head: "503 pending_full", Value: "full"}, {Head: "other errors", Value: "others"}, {Head: "p50 ms", Value: "p50"}, {Head: "max ms", Value: "max"}},
				Theirs:  [][]any{{500, 1000, "more than 1 500", "", "refused, with an error of its own", "", "", ""}}},
			{Title: "figures of a field report", Heads: []string{"setting", "requests/s"}, Theirs: [][]any{{"no pool, http, 10 or 100 ms", "~3 000, whatever the latency"}, {"no pool, https, 100 or 1 000 ms", "~300"},
				{"pool of 100, https, 10 ms", "400 → ~4 000"}, {"pool of 100, 1 s", "100 = N / X"}, {"pool of 100, 500 ms", "200 = N / X"}}}},
		Charts: []stage.Chart{
			{Title: "Throughput against places, by the SSP's latency (http)", Only: "http", Line: true, X: "places N", Y: "requests/s", LogX: true, LogY: true, Series: []stage.Series{{Value: "rate"}, {Name: ", N / X", Value: "expected", Dashed: true}}},
			{Title: fmt.Sprintf("%d at once, with and without a pool", sizes[0]), Only: fmt.Sprint(sizes[0]), Y: "requests/s", LogY: true, Series: []stage.Series{{Value: "rate"}}}},
		Promises: []stage.Promise{
			{Text: "requests for which there is no place and no room in the queue are refused at once, with an error of their own", Group: "overflow", If: "full = 100 and others = 0",
				Words: "Of 400 requests at once for 100 places and a queue of 200, {answered} succeeded, {full} got 503 pending_full and {others} failed otherwise."},
			{Doubtful: true, Text: "throughput is places / latency, on every protocol, until the cores are full", If: "min:share >= 0.9", Words: "Where N / X asks for at most 2 000 requests/s, the least was {min:share|%} of it ({row})."}},
	}
	for _, way := range []struct {
		name     string
		speaks   sspsim.Protocol
		protocol string
		noPool   bool
	}{
		{"http", sspsim.HTTP1, "http1", false}, {"https", sspsim.TLSHTTP1, "http1", false}, {"h2", sspsim.TLSHTTP2, "http2", false},
		{"no pool, http", sspsim.HTTP1, "http1", true}, {"no pool, https", sspsim.TLSHTTP1, "http1", true},
	} {
		for _, n := range sizes {
			if way.noPool && n != sizes[0] {
				continue // with a connection per request, the number of places changes nothing
			}
			pool := fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s, max_dials: 64", n, n)
			switch {
			case way.protocol == "http2": // n streams on four connections
				pool = fmt.Sprintf("max_conns: 4, max_http2_conns: 4, max_streams_per_conn: %d, max_pending: %d, pending_timeout: 30s, min_idle: 4", n/4, n)
			case way.noPool:
				pool += ", max_requests_per_conn: 1"
			default:
				pool += fmt.Sprintf(", min_idle: %d", n) // the pool is warm before the measurement
			}
			for _, x := range latencies {
				b := steady(x)
				b.Connections.MaxStreams = 1000
				expected := float64(n) / x.Seconds()
				// The load is long enough for several rounds. The first round has the handshakes and is
				// not measured.
				plan := stage.ClosedLoop(n, 0, 0, small)
				plan.Phases = []load.Phase{{Name: "warm-up", Duration: max(2*x, 300*time.Millisecond), Unrecorded: true}, {Name: "load", Duration: max(e.Time(10*time.Second, time.Second), 3*x)}}
				trial := stage.Trial{Name: fmt.Sprintf("%s, %d places, %v", way.name, n, x), Cells: []any{way.name, n, x}, Tags: []string{way.name, fmt.Sprint(n)}, X: float64(n), Line: x.String(), Label: x.String(), Series: way.name,
					SSPs: []*stage.SSP{{Name: "ssp", Speaks: way.speaks, Behaviour: b, Protocol: way.protocol, Pool: pool, More: []string{"timeouts: {connect: 10s, tls_handshake: 10s}", "breaker: {enabled: false}"}}}, Const: stage.Values{"expected": expected},
					Server: stage.Server{Anywhere: true, Config: stage.Config{Deadline: "30s"}}}
				drive := stage.Generate(plan, false)
				if expected <= modest {
					drive = stage.Calmly(plan, false) // higher rates fill the cores anyway
				}
				trial.Derive = func(s *stage.Sample) {
					if expected <= modest && !way.noPool {
						s.Values["share"] = s.Values["rate"] / expected
					}
				}
				trial.Steps = []stage.Step{{Load: drive}}
				t.Trials = append(t.Trials, trial)
			}
		}
	}
	t.Trials = append(t.Trials, overflow())
	return t
}

// overflow sends more requests at once than the places and the queue hold. adbuffer must refuse the
// rest at once, with an error of their own.
func overflow() stage.Trial {
	const places, queue, clients = 100, 200, 400
	return stage.Trial{Name: "overflow", Group: "overflow", Cells: []any{places, queue, clients}, Server: stage.Server{Anywhere: true},
		SSPs: []*stage.SSP{{Name: "overflow", Protocol: "http1", Behaviour: steady(500 * time.Millisecond), Pool: fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s, max_dials: 100", places, queue)}},
		Steps: []stage.Step{{Load: stage.Generate(stage.ClosedLoop(clients, clients, 0, small), true), Before: func(ctx context.Context, s *stage.Stage) (func() error, error) {
			// All connections are open first, so that no request waits for a dial.
			_, err := s.Generate(ctx, stage.ClosedLoop(places, places, 0, small), nil)
			return nil, err
		}}},
		Derive: func(s *stage.Sample) {
			s.Values["full"] = s.Values["errors.503 pending_full"]
			s.Values["others"] = s.Values["failed"] - s.Values["full"]
		}}
}
