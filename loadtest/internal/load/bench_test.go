package load

import "testing"

// The upstream is a process of its own. The important figure is cpu-ns/request: the CPU time of the
// generator for each request.
func benchmark(b *testing.B, protocol Protocol, conns, depth int) {
	addr := startUpstream(b)
	p := closedPlan(addr, b.N, conns)
	p.Protocol, p.Depth = protocol, depth
	b.ResetTimer()
	r, err := Run(b.Context(), p, nil)
	if err != nil {
		b.Fatal(err)
	}
	if r.Whole.Answered != uint64(b.N) {
		b.Fatalf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	}
	b.ReportMetric(r.Generator.CPUSeconds*1e9/float64(b.N), "cpu-ns/request")
}

func BenchmarkKeepAlive(b *testing.B) { benchmark(b, KeepAlive, 64, 1) }
func BenchmarkPipelined(b *testing.B) { benchmark(b, Pipelined, 16, 16) }
func BenchmarkClose(b *testing.B)     { benchmark(b, Close, 32, 1) }
