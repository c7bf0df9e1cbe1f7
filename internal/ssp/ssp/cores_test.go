package ssp

import "testing"

// BenchmarkCores measures how more cores slow the count of requests in flight: make bench-cores.
// Each request adds to the same word twice. A counter per core could not keep the limit exactly.
//
// On two otherwise idle cores, both additions take 11 ns; on one core 5 ns. That is 0.1 % of a
// request, so the count stays one word.
func BenchmarkCores(b *testing.B) {
	var f InFlight
	f.SetLimit(1 << 20)
	b.SetParallelism(4)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !f.Acquire() {
				b.Error("refused below the limit")
			}
			f.Release()
		}
	})
}
