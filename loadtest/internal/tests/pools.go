package tests

import (
	"fmt"
	"math"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// modest is the highest rate, in requests a second, that does not saturate the cores.
const modest = 2000

// poolWay is how adbuffer reaches the SSP of a pool.
type poolWay struct {
	name     string
	speaks   sspsim.Protocol
	protocol string
	noPool   bool
}

var poolWays = []poolWay{
	{"http", sspsim.HTTP1, "http1", false},
	{"https", sspsim.TLSHTTP1, "http1", false},
	{"h2", sspsim.TLSHTTP2, "http2", false},
	{"no pool, http", sspsim.HTTP1, "http1", true},
	{"no pool, https", sspsim.TLSHTTP1, "http1", true},
}

// pools compares adbuffer with Little's law: N places of an SSP with latency X carry N / X requests a
// second, until a core is full.
func pools(e *rig.Rig) {
	sizes := []int{100, 200, 500, 1000, 2000}
	latencies := []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second}
	if e.Scale < 0.5 {
		sizes = []int{100, 500, 2000}
		latencies = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}
	}
	r := e.Rep
	r.Note("As many clients as places send as fast as responses come, to a pool whose connections are open before. " +
		"TLS handshakes are those during the measurement.")
	r.Note("h2 has its places on four connections. Without a pool, every request has a connection of its own to the SSP.")
	t := r.Table("as many clients as places", "upstream", "places N", "latency X", "N / X per s", "measured per s",
		"of N / X", "p50 ms", "p99 ms",
		"open connections", "TLS handshakes", "adbuffer memory")
	least := struct {
		share  float64 // of N / X
		name   string
		doubts []string
	}{share: math.Inf(1)}
	for _, way := range poolWays {
		for _, n := range sizes {
			if way.noPool && n != sizes[0] {
				continue // without keep-alive, the number of places has no effect
			}
			for _, x := range latencies {
				name := fmt.Sprintf("%s, %d places, %v", way.name, n, x)
				e.Next("pools: %s", name)
				f := fillPool(e, way, n, x)
				expected := float64(n) / x.Seconds()
				of := f.Rate / expected
				t.Add(f.Doubts, way.name, n, x, expected, f.Rate, results.Percent(of), f.Latency.P50, f.Latency.P99,
					f.SSPOpen, f.SSP.Handshakes, results.MiB(f.RSS))
				if expected <= modest && !way.noPool && of < least.share {
					least.share, least.name, least.doubts = of, name, f.Doubts
				}
			}
		}
	}
	t = r.Table("a queue that overflows", "places", "queue", "requests at once", "answered", "503 pending_full",
		"other errors", "p50 ms", "max ms")
	t.AddTheirs(500, 1000, "more than 1 500", "", "refused, with an error of its own")
	e.Next("pools: overflow")
	f := overflow(e)
	full := f.Errors["status 503 proxy/pending_full"]
	t.Add(f.Doubts, overflowPlaces, overflowQueue, overflowClients, f.Answered, full, f.Failed-full, f.Latency.P50,
		f.Latency.Max)
	t = r.Table("figures of a field report", "setting", "requests/s")
	t.AddTheirs("no pool, http, 10 or 100 ms", "~3 000, whatever the latency")
	t.AddTheirs("no pool, https, 100 or 1 000 ms", "~300")
	t.AddTheirs("pool of 100, https, 10 ms", "400 → ~4 000")
	t.AddTheirs("pool of 100, 1 s", "100 = N / X")
	t.AddTheirs("pool of 100, 500 ms", "200 = N / X")
	r.Promise("requests for which there is no place and no room in the queue are refused at once, with an error of "+
		"their own", full == overflowClients-overflowPlaces-overflowQueue && f.Failed == full, f.Doubts,
		"Of %v requests at once for %v places and a queue of %v, %v succeeded, %v got 503 pending_full and %v "+
			"failed otherwise.",
		overflowClients, overflowPlaces, overflowQueue, f.Answered, full, f.Failed-full)
	r.Promise("throughput is places / latency, on every protocol, until the cores are full", least.share >= 0.9,
		least.doubts, "Where N / X asks for at most 2 000 requests/s, the least was %s of it (%s).",
		results.Percent(least.share), least.name)
}

// fillPool loads a pool of n places with as many clients, for an SSP of latency x.
func fillPool(e *rig.Rig, way poolWay, n int, x time.Duration) *rig.Figures {
	pool := limits(n, n, "30s") + ", max_dials: 64"
	switch {
	case way.protocol == "http2": // n streams on four connections
		pool = limits(4, n, "30s") + fmt.Sprintf(", max_http2_conns: 4, max_streams_per_conn: %d, min_idle: 4", n/4)
	case way.noPool:
		pool += ", max_requests_per_conn: 1"
	default:
		pool += fmt.Sprintf(", min_idle: %d", n) // the pool is warm before the measurement
	}
	b := steady(x)
	b.Connections.MaxStreams = 1000
	// The load is long enough for several rounds. The first round has the handshakes and is not measured.
	plan := rig.ClosedLoop(n, 0, 0, small)
	plan.Phases = []load.Phase{{Name: "warm-up", Duration: max(2*x, 300*time.Millisecond), Unrecorded: true},
		{Name: "load", Duration: max(e.Time(10*time.Second, time.Second), 3*x)}}
	run := rig.Generate(plan, false)
	if float64(n)/x.Seconds() <= modest {
		run = rig.GenerateRetried(plan, false) // at higher rates a busy machine is expected
	}
	return e.Once(rig.Setup{Anywhere: true, Config: rig.Config{Deadline: "30s"},
		SSPs: []*rig.SSP{{Name: "ssp", Speaks: way.speaks, Behaviour: b,
			Protocol: way.protocol, Pool: pool, More: []string{"timeouts: {connect: 10s, tls_handshake: 10s}",
				"breaker: {enabled: false}"}}}}, run)
}

// The sizes of overflow, which sends more requests at once than the places and the queue hold.
const overflowPlaces, overflowQueue, overflowClients = 100, 200, 400

func overflow(e *rig.Rig) *rig.Figures {
	s := e.Start(rig.Setup{Anywhere: true,
		SSPs: []*rig.SSP{{Name: "overflow", Protocol: "http1", Behaviour: steady(500 * time.Millisecond),
			Pool: limits(overflowPlaces, overflowQueue, "30s") + ", max_dials: 100"}}})
	defer s.Stop()
	// All connections are open first, so that no request waits for a dial.
	s.Measure(rig.Generate(rig.ClosedLoop(overflowPlaces, overflowPlaces, 0, small), false))
	return s.Measure(rig.Generate(rig.ClosedLoop(overflowClients, overflowClients, 0, small), true))
}
