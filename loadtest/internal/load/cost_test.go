//go:build !race

package load

import (
	"testing"
	"time"
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
	addr := startUpstream(t)
	// The set-up allocates. More requests must not allocate more.
	cost := func(n int) float64 {
		return testing.AllocsPerRun(1, func() { run(t, closedPlan(addr, n, 8)) })
	}
	few, many := cost(1000), cost(21000)
	if each := (many - few) / 20000; each > 0.01 {
		t.Errorf("a request allocates %.3f times", each)
	}
}
