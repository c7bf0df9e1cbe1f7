package metrics

import (
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const ms = time.Millisecond

var (
	waitDescs Descs
	descOne   = waitDescs.New("wait_seconds", "Time.", "ssp")
)

// wantText compares the exported series of h, behind their HELP and TYPE, with want.
func wantText(t *testing.T, h *Histogram, want string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewSource(waitDescs, func(to Sink) { to.Histogram(descOne, h, "openx") }))
	const head = "# HELP wait_seconds Time.\n# TYPE wait_seconds histogram\n"
	testsupport.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(head+want)))
}

func TestBucketsAreCumulativeWithInclusiveBounds(t *testing.T) {
	h := Durations(ms, 5*ms, 35*ms)
	for _, d := range []time.Duration{0, ms, ms + 1, 5 * ms, 6 * ms, 35 * ms, time.Second} {
		h.ObserveDuration(d)
	}
	wantText(t, h, `wait_seconds_bucket{ssp="openx",le="0.001"} 2
wait_seconds_bucket{ssp="openx",le="0.005"} 4
wait_seconds_bucket{ssp="openx",le="0.035"} 6
wait_seconds_bucket{ssp="openx",le="+Inf"} 7
wait_seconds_sum{ssp="openx"} 1.048000001
wait_seconds_count{ssp="openx"} 7
`)
}

func TestAHistogramWithoutBoundsHasNoClassicBuckets(t *testing.T) {
	h := Durations()
	for _, d := range []time.Duration{0, ms, time.Minute} {
		h.ObserveDuration(d)
	}
	wantText(t, h, `wait_seconds_bucket{ssp="openx",le="+Inf"} 3
wait_seconds_sum{ssp="openx"} 60.001
wait_seconds_count{ssp="openx"} 3
`)
}

func TestExportedBoundsAreTheDecimalsThatWereMeant(t *testing.T) {
	for d, want := range map[time.Duration]float64{
		ms / 10: 1e-4, ms / 4: 2.5e-4, 35 * ms: 0.035, 75 * ms: 0.075, 150 * ms: 0.15, 300 * ms: 0.3, 2500 * ms: 2.5, time.Minute: 60,
	} {
		testsupport.Equal(t, Durations(d).exported[0], want, "%[2]v is exported as %[1]v", d)
	}
}

func TestSumDoesNotOverflow(t *testing.T) {
	h := Durations(ms)
	const big = 100 * 365 * 24 * time.Hour // three of them overflow an int64 of nanoseconds
	last := 0.0
	for range 10 {
		h.ObserveDuration(big)
		testsupport.MustTrue(t, h.Sum() > last, "the sum went from %v to %v", last, h.Sum())
		last = h.Sum()
	}
	want := 10 * big.Seconds()
	testsupport.True(t, math.Abs(last-want) <= 1, "the sum is %v, want %v", last, want)
}

func TestNegativeDurationsCountAsZero(t *testing.T) {
	h := Durations(ms)
	h.ObserveDuration(-time.Second)
	testsupport.True(t, h.Count() == 1 && h.Sum() == 0, "count %d, sum %v; want 1 and 0", h.Count(), h.Sum())
}

func TestQuantileIsTheBoundOfItsBucket(t *testing.T) {
	h := Durations(ms, 10*ms, 100*ms)
	testsupport.Equal(t, h.Quantile(0.5), 0, "the median of nothing is %v")
	for range 90 {
		h.ObserveDuration(ms / 2)
	}
	for range 9 {
		h.ObserveDuration(50 * ms)
	}
	h.ObserveDuration(time.Second)
	for q, want := range map[float64]float64{0.5: 0.000580667, 0.9: 0.000580667, 0.95: 0.052556025, 0.99: 0.052556025, 0.999: 0.1} {
		testsupport.Equal(t, h.Quantile(q), want, "the %[2]v quantile is at most %[1]v", q)
	}
}

func TestNothingIsLostUnderConcurrency(t *testing.T) {
	h := Durations(1, 2, 3)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 2000 {
				h.ObserveDuration(time.Duration(i))
			}
		})
	}
	all.Wait()
	testsupport.True(t, h.Count() == 16000 && h.Sum() == 56e-6, "count %d, sum %v; want 16000 and 56e-6", h.Count(), h.Sum())
}

func TestStripesOfAllCoresAreAddedUp(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(6))
	h, c := Durations(1, 2, 3), NewCounter()
	n := len(h.stripes.cells) / h.stripes.width
	testsupport.MustTrue(t, n == 8 && h.stripes.mask == 7, "%d stripes, mask %d, for 6 cores", n, h.stripes.mask)
	i := 0
	for own := range h.stripes.all() {
		i++
		own[sumLow].Add(uint64(i))
		own[sumHigh].Add(1)
		own[firstCount+i%4].Add(1)
		c.stripes.cells[(i-1)*c.stripes.width].Add(1)
	}
	if h.Count() != 8 || h.Sum() != (36+8*float64(sumCarry))/1e9 || h.count(0) != 2 || c.Load() != 8 {
		t.Errorf("count %d, sum %v, in the first bucket %d, counter %d", h.Count(), h.Sum(), h.count(0), c.Load())
	}
	// If the process gets more cores later, cores share stripes.
	runtime.GOMAXPROCS(32)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 100 {
				c.Inc()
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	testsupport.Equal(t, c.Load(), 8+6400, "counter %d, want 6408")
}

func TestStripesAreACacheLineApart(t *testing.T) {
	for used := 1; used < 40; used++ {
		s := newStripes(used)
		testsupport.True(t, s.width-used >= lineWords && len(s.cells) == (s.mask+1)*s.width, "%d words are %d apart, %d in all", used, s.width, len(s.cells))
	}
}

func TestBoundsMustAscend(t *testing.T) {
	for _, bounds := range [][]time.Duration{{2, 1}, {1, 1}} {
		func() {
			defer func() {
				testsupport.True(t, recover() != nil, "bounds %v were accepted", bounds)
			}()
			Durations(bounds...)
		}()
	}
}

func TestObservingAllocatesNothing(t *testing.T) {
	h := Durations(ms, 2*ms)
	testsupport.Equal(t, testing.AllocsPerRun(100, func() { h.ObserveDuration(ms) }), 0, "%v allocations")
}

var bounds = []time.Duration{ms, 2 * ms, 5 * ms, 10 * ms, 20 * ms, 35 * ms, 50 * ms, 75 * ms, 100 * ms, 150 * ms, 200 * ms, 300 * ms, 500 * ms, time.Second}

// inParallel returns a benchmark of observe by so many goroutines for each core.
func inParallel(goroutines int, observe func()) func(*testing.B) {
	return func(b *testing.B) {
		b.SetParallelism(goroutines)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				observe()
			}
		})
	}
}

// BenchmarkObserve measures what an observation costs, beside client_golang's histograms.
func BenchmarkObserve(b *testing.B) {
	own, native := RequestDurations(), NewDurations(0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1)
	classic := prometheus.NewHistogram(prometheus.HistogramOpts{Buckets: []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1}})
	for name, observe := range map[string]func(time.Duration){
		"own": own.ObserveDuration, "client_golang, native": func(d time.Duration) { native.Observe(d.Seconds()) }, "client_golang, classic": func(d time.Duration) { classic.Observe(d.Seconds()) },
	} {
		b.Run(name, inParallel(1, func() { observe(30 * ms) }))
	}
}

// BenchmarkCores measures how more cores slow an observation and a count: make bench-cores.
func BenchmarkCores(b *testing.B) {
	h, c := Durations(bounds...), NewCounter()
	b.Run("histogram", inParallel(4, func() { h.ObserveDuration(30 * ms) }))
	b.Run("counter", inParallel(4, c.Inc))
	var shared struct{ sum, count atomic.Uint64 }
	b.Run("shared words", inParallel(4, func() { shared.sum.Add(1); shared.count.Add(1) }))
}

func TestPartsAreFinerForQuantilesAndExportedAsWholeBuckets(t *testing.T) {
	h := DurationsInParts(4, 20*ms, 100*ms)
	for _, d := range []time.Duration{ms, 6 * ms, 20 * ms, 21 * ms, 40 * ms, 100 * ms, time.Second} {
		h.ObserveDuration(d)
	}
	before := h.Counts()
	for q, want := range map[float64]float64{0.1: 0.001161335, 0.25: 0.006569503, 0.4: 0.020, 0.5: 0.022097086, 0.7: 0.040, 0.8: 0.100, 0.99: 0.100} {
		testsupport.Equal(t, h.Quantile(q), want, "the %[2]v-quantile is %[1]v", q)
	}
	wantText(t, h, `wait_seconds_bucket{ssp="openx",le="0.02"} 3
wait_seconds_bucket{ssp="openx",le="0.1"} 6
wait_seconds_bucket{ssp="openx",le="+Inf"} 7
wait_seconds_sum{ssp="openx"} 1.188
wait_seconds_count{ssp="openx"} 7
`)
	for range 10 {
		h.ObserveDuration(50 * ms)
	}
	testsupport.Equal(t, h.QuantileOf(0.5, h.Counts().Sub(before)), 0.052556025, "the median since then is %v, want 0.052556025, the end of a native bucket")
	testsupport.Equal(t, h.QuantileOf(0.5, h.Counts().Sub(h.Counts())), 0, "the median of nothing is %v")
}
