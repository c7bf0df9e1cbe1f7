package pool

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// spun keeps the compiler from removing the work.
var spun atomic.Uint64

// work takes 1.1 ns of CPU for each step.
func work(steps int) {
	x := uint64(1)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if x == 0 {
		spun.Add(1)
	}
}

// BenchmarkCores measures the cost of acquire and release on several cores: make bench-cores. Four
// goroutines per P compete for one pool.
//
//   - nothing else: they do no other work. This is the worst case.
//   - a request: they use 11 us of CPU between acquire and release, the least that a request needs.
//   - scraped: a goroutine also takes a thousand snapshots a second.
//
// With -cpu 8 on two cores, the kernel may preempt the lock's holder. A lock convoy would begin
// this way.
//
// CPU ns/op on an AMD EPYC whose two cores share no cache. The figures are medians of 8 runs of 15
// ms each in the real-time class, so that no other process disturbs them (chrt -r 1):
//
//	-cpu                          1       2       8
//	exclusive, nothing else     118     798     940
//	exclusive, a request      11090   11406   11384
//	pipelined, nothing else     159     960    1240
//	pipelined, a request      11198   11664   11642
//	http2, nothing else         163     979     937
//	http2, a request          11392   11663   11663
//
// So the second core costs a request 0.2 to 0.5 us of CPU in the pool, 2 to 4 %. It cost 0.6 to 0.8
// us before three changes. Each core counts in its own histograms and counters: half of the gain,
// for 9 ns more on one core. The fields that requests change have their own cache lines: a third of
// the gain. The pool observes after it has unlocked. Neither -cpu 8 nor scraping makes it slower:
// no convoy forms.
//
// The idle connections are not split by core. In the worst case acquire and release hold the lock
// for 0.6 us. So one pool serves 1.6 million requests a second, as many as 18 cores can send to one
// SSP. A split would save 2 to 4 % at most. It would lose three guarantees of the single list: most
// recently used connection first, first in first out, and an exact max_conns.
func BenchmarkCores(b *testing.B) {
	for _, kind := range []struct {
		name  string
		like  nullConn
		conns int
	}{
		{"exclusive", nullConn{protocol: exchange.HTTP1, places: 1}, 256},
		{"pipelined", nullConn{protocol: exchange.HTTP1Pipelined, places: 8}, 64},
		{"http2", nullConn{protocol: exchange.HTTP2, places: 100}, 4},
	} {
		for _, load := range []struct {
			name    string
			steps   int
			scraped bool
		}{{"nothing else", 0, false}, {"a request", 10000, false}, {"scraped", 0, true}} {
			b.Run(kind.name+"/"+load.name, func(b *testing.B) {
				p := startFor(b, kind.like, kind.conns)
				if load.scraped {
					defer scrape(p)()
				}
				b.SetParallelism(4)
				b.ReportAllocs()
				b.ResetTimer()
				before := testsupport.CPUTime(b)
				b.RunParallel(func(pb *testing.PB) {
					ex := newExchange()
					for pb.Next() {
						ex.Times.Queued = time.Time{}
						place, err := p.Acquire(ex)
						if err != nil {
							b.Error(err)
							return
						}
						work(load.steps)
						place.Do(ex)
					}
				})
				b.ReportMetric(float64(testsupport.CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// scrape takes a thousand snapshots a second, until stop is called.
func scrape(p *Pool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			p.Snapshot()
			time.Sleep(time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
