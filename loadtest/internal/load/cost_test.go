//go:build !race

package load

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// The generator must cost less than the server that it measures. The test limits the CPU time, because
// it hardly depends on other processes. The limits are 60 000 and 150 000 requests a second and core.
func TestRequestCostsTheGeneratorLittleCPU(t *testing.T) {
	addr := startUpstream(t)
	for _, c := range []struct {
		protocol Protocol
		depth    int
		limit    time.Duration
	}{{KeepAlive, 1, time.Second / 60_000}, {Pipelined, 16, time.Second / 150_000}} {
		p := closedPlan(addr, 50_000, 32)
		p.Protocol, p.Depth = c.protocol, c.depth
		r := run(t, p)
		if r.Whole.Answered != 50_000 {
			t.Fatalf("%s: %d responses, errors %v", c.protocol, r.Whole.Answered, r.Whole.Errors)
		}
		cost := time.Duration(r.Generator.CPUSeconds * 1e9 / 50_000)
		t.Logf("%s: %v of CPU time a request", c.protocol, cost)
		if cost > c.limit {
			t.Errorf("%s: a request costs %v of CPU time, want at most %v", c.protocol, cost, c.limit)
		}
	}
}

// A request must not allocate, because pauses of the garbage collector would look like pauses of the
// server.
func TestRequestAllocatesNothing(t *testing.T) {
	s, err := StartConstant("127.0.0.1:0", ConstantBody(1000))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// The set-up allocates. More requests must not allocate more.
	cost := func(n int) float64 {
		return testing.AllocsPerRun(1, func() { run(t, closedPlan(s.Addr(), n, 8)) })
	}
	few, many := cost(1000), cost(21000)
	if each := (many - few) / 20000; each > 0.01 {
		t.Errorf("a request allocates %.3f times", each)
	}
}

// The SSP responds fast to three bursts and slowly to the last one. All requests of a burst on one
// connection arrive together and wait together. With the race detector they arrive one by one.
func TestPipelinedRequestsAreTimedOneByOne(t *testing.T) {
	testsupport.Long(t)
	const bursts, size, conns = 4, 40, 4
	// A slow machine takes some 0.3 ms for each request of a burst, and the median waits for half of
	// them. 5 % of fast is more than that.
	const fast, slow, every = 5 * fast, 3 * slow, 6 * fast
	try(t, func() []string {
		var mu sync.Mutex
		held := map[uint64]bool{} // connections whose last burst was delayed
		s := startSSP(t, sspsim.Options{
			Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(fast),
				Connections: sspsim.Connections{PipelineOverlap: true}},
			OnRequest: func(q *sspsim.Request) {
				_, number, _ := strings.Cut(q.Target, "cb=")
				n, err := strconv.Atoi(number)
				mu.Lock()
				first := err == nil && n > (bursts-1)*size && !held[q.Conn]
				held[q.Conn] = held[q.Conn] || first
				mu.Unlock()
				if first {
					time.Sleep(time.Until(q.Time.Add(slow)))
				}
			},
		})
		// A burst must be complete before the next one, which would otherwise wait for it.
		p := at(s.Addr(), 0, bursts*every)
		p.Phases[0].BurstEvery, p.Phases[0].BurstSize = every, size
		p.Protocol, p.Depth, p.Connections = Pipelined, 64, conns
		stop := lateness(t)
		r := run(t, p)
		late := stop()
		if r.Whole.Answered != bursts*size || r.Connections.TCP != conns || r.Connections.Reused != bursts*size-conns {
			t.Fatalf("%d responses, %d handshakes and %d reuses for %d requests on %d connections", r.Whole.Answered,
				r.Connections.TCP, r.Connections.Reused, bursts*size, conns)
		}
		return append(within("p50", r.Whole.Latency.P50, fast, late(0.5)),
			within("p99", r.Whole.Latency.P99, slow, late(0.99))...)
	})
}
