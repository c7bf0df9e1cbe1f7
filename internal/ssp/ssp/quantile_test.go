package ssp

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// The test compares with sorting, over random latencies: the result is never lower, and at most a
// sixteenth higher.
func TestQuantileIsWithinASixteenth(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		of := 0.5 + 0.49*rnd.Float64()
		var q quantile
		q.init(of)
		median, sigma := math.Pow(10, 3+6*rnd.Float64()), rnd.Float64()*1.5 // 1 µs to 1 s
		var all []time.Duration
		for range 2000 {
			d := time.Duration(median * math.Exp(sigma*rnd.NormFloat64()))
			all = append(all, d)
			q.observe(0, 0, d)
		}
		q.observe(quantileRefresh, 0, all[0])
		all = append(all, all[0])
		slices.Sort(all)
		want := all[int(math.Ceil(of*float64(len(all))))-1]
		got := q.get()
		testsupport.Between(t, got, want, want+want/quantileSteps+time.Microsecond, "seed %[2]d: the %.3[3]f quantile is %[1]v", seed, of)
	}
}

func TestQuantileNeedsTenObservationsBeyondIt(t *testing.T) {
	for of, need := range map[float64]int{0.5: 20, 0.95: 200, 0.999: 10000} {
		for n, known := range map[int]bool{need - 1: false, need: true} {
			var q quantile
			q.init(of)
			for range n - 1 {
				q.observe(0, 0, time.Millisecond)
			}
			q.observe(quantileRefresh, 0, time.Millisecond)
			got := q.get()
			testsupport.True(t, (got > 0) == known, "the %v quantile is %v after %d", of, got, n)
		}
	}
}

// If the largest bucket ended below the longest deadline, every attempt that is slower would be hedged.
func TestQuantileReachesTheLongestDeadline(t *testing.T) {
	const latency = 10 * time.Minute
	var q quantile
	q.init(0.5)
	for range 19 {
		q.observe(0, 0, latency)
	}
	q.observe(quantileRefresh, 0, latency)
	testsupport.Between(t, q.get(), latency, latency+latency/quantileSteps, "the median is %v")
}

func TestQuantileForgets(t *testing.T) {
	var q quantile
	q.init(0.5)
	feed := func(from, to, latency time.Duration) {
		for now := from; now < to; now += 10 * msec {
			q.observe(now, 0, latency)
		}
	}
	feed(0, 10*time.Second, 100*msec)
	got := q.get()
	testsupport.MustTrue(t, got >= 100*msec && got <= 107*msec, "is %v", got)
	feed(10*time.Second, 30*time.Second, 10*msec)
	testsupport.AtMost(t, q.get(), 11*msec, "is %v, but two of three latencies are 10ms")
	feed(30*time.Second, 61*time.Second, 20*msec)
	q.set(0.999)
	feed(61*time.Second, 62*time.Second, 20*msec)
	testsupport.AtMost(t, q.get(), 22*msec, "the longest is %v: latencies of a minute ago still count")
	q.set(0.5)
	feed(time.Hour, time.Hour+quantileRefresh+10*msec, time.Millisecond)
	testsupport.AtMost(t, q.get(), 2*msec, "is %v after an hour without observations, and then 1ms")
	q.observe(2*time.Hour, 0, time.Millisecond)
	testsupport.Equal(t, q.get(), 0, "is %v after another hour and one observation, want unknown")
}

func TestQuantileObservesConcurrently(t *testing.T) {
	var q quantile
	q.init(0.9)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 5000 {
				q.observe(time.Duration(i)*10*msec, 0, 5*msec)
				if v := q.get(); v != 0 && (v < 5*msec || v > 6*msec) {
					t.Errorf("is %v", v)
					return
				}
			}
		})
	}
	wg.Wait()
}
