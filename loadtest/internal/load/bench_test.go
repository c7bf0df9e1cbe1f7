package load

import (
	"testing"
)

// The generator and the upstream have a thread each. The important figure is cpu-ns/request: the CPU
// time of the generator for each request.
func benchmark(b *testing.B, protocol Protocol, conns, depth int) {
	s, err := StartConstant("127.0.0.1:0", ConstantBody(1000))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	p := closedPlan(s.Addr(), b.N, conns)
	p.Protocol, p.Depth = protocol, depth
	b.ResetTimer()
	r, err := Run(b.Context(), p, nil)
	if err != nil {
		b.Fatal(err)
	}
	if r.Whole.Answered != uint64(b.N) {
		b.Fatalf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	}
	b.ReportMetric(r.Generator.Busiest*r.Whole.Seconds*1e9/float64(b.N), "cpu-ns/request")
}

func BenchmarkKeepAlive(b *testing.B) { benchmark(b, KeepAlive, 64, 1) }
func BenchmarkPipelined(b *testing.B) { benchmark(b, Pipelined, 16, 16) }
func BenchmarkClose(b *testing.B)     { benchmark(b, Close, 32, 1) }
