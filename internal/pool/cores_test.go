package pool

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/upstream"
)

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spun keeps the compiler from leaving work out.
var spun atomic.Uint64

// work takes 1.1 ns of CPU a step.
func work(steps int) {
	x := uint64(1)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if x == 0 {
		spun.Add(1)
	}
}

// BenchmarkCores is what more cores cost acquire and release: make bench-cores.
// Four goroutines for each P compete for one pool, with nothing else to do,
// which is the worst that can be, and with a request's 11 us of CPU between
// acquire and release, which is the least that adbuffer needs for one; scraped:
// beside one who asks for snapshots all the time. On two cores -cpu 4 and 8 let
// the kernel take the lock's holder off its core, so that others run into it:
// the start of a convoy, were there one.
//
// CPU ns/op, before and now, on an AMD EPYC whose two cores share no cache: the
// medians of 8 runs of 15 ms each, builds in turns, in the real-time class, which
// keeps others off the cores (chrt -r 1):
//
//	-cpu                          1                2                8
//	exclusive, nothing else     109    118     1414    798     1450    940
//	exclusive, a request      11145  11090    11771  11406    11755  11384
//	pipelined, nothing else     148    159     1456    960     1579   1240
//	pipelined, a request      11190  11198    11986  11664    12046  11642
//	http2, nothing else         155    163     1436    979     1312    937
//	http2, a request          11310  11392    12036  11602    11966  11663
//
// So the second core costs a request 0.2 to 0.5 us of CPU in the pool, 2 to 4 %,
// where it cost 0.6 to 0.8. What helped: histograms and counters that count on
// each core apart, which takes 9 ns more on one core (half of it), what requests
// change in the pool on cache lines of its own (a third), and observing after the
// lock is left. A cheaper high-water mark did not help. With -cpu 8, and beside
// snapshots, it is not worse than with 2: no convoy forms.
//
// The idle connections are not split among cores. At the worst, acquire and
// release hold others up for 0.6 us, so one pool lends 1.6 million places a
// second, however many cores ask: what 18 cores ask of one and the same SSP at
// 11 us a request. To split would save 2 to 4 % at most, less the word that all
// cores had to share still, since pool_saturation_at_arrival and its high-water
// mark are exact; and it would cost what one list gives: the most recently used
// connection first, first come first served, and max_conns held exactly, without
// a look at the lists of all cores. A machine that sends more than that to one
// SSP runs two adbuffers.
func BenchmarkCores(b *testing.B) {
	for _, kind := range []struct {
		name  string
		like  nothing
		conns int
	}{
		{"exclusive", nothing{protocol: upstream.HTTP1, places: 1}, 256},
		{"pipelined", nothing{protocol: upstream.HTTP1Pipelined, places: 8}, 64},
		{"http2", nothing{protocol: upstream.HTTP2, places: 100}, 4},
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
				before := cpuTime()
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
						place.Do(ex) //nolint:errcheck // nothing that can fail
					}
				})
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// scrape asks for snapshots, a thousand a second, until the returned function is
// called.
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
