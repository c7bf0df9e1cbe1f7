//go:build !race

package load

import "testing"

// BenchmarkRequest measures the CPU time that a request costs the generator.
func BenchmarkRequest(b *testing.B) {
	addr := startUpstream(b)
	for _, c := range []struct {
		protocol Protocol
		depth    int
	}{{KeepAlive, 1}, {Pipelined, 16}} {
		b.Run(string(c.protocol), func(b *testing.B) {
			p := closedPlan(addr, max(b.N, 32), 32)
			p.Protocol, p.Depth = c.protocol, c.depth
			r := run(b, p)
			b.ReportMetric(r.Generator.CPUSeconds*1e9/float64(r.Whole.Answered), "cpu-ns/op")
		})
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
	few, many := cost(1000), cost(11000)
	if each := (many - few) / 10000; each > 0.01 {
		t.Errorf("a request allocates %.3f times", each)
	}
}
