package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// The test simulates the queue of the formulas, event by event: Poisson arrivals, one FIFO queue, N
// servers. Seeds are fixed, so a run can be repeated. Its tolerance is four standard errors, estimated
// from the run.

// replaceFirst replaces the earliest of times, which are in order, by a later one.
func replaceFirst(times []float64, later float64) {
	at, _ := slices.BinarySearch(times, later)
	copy(times, times[1:at])
	times[at-1] = later
}

// lognormalHold draws holds, in seconds, with the given quantiles.
func lognormalHold(rng *rand.Rand, p50, p99 time.Duration) func() float64 {
	mu := math.Log(p50.Seconds())
	sigma := (math.Log(p99.Seconds()) - mu) / 2.3263478740408408
	return func() float64 { return math.Exp(mu + sigma*rng.NormFloat64()) }
}

// estimate is a mean over batches of one run.
type estimate struct{ mean, standardError float64 }

// batchMeans splits values into 25 runs, long enough to be nearly independent.
func batchMeans(values []float64) estimate {
	const batches = 25
	size := len(values) / batches
	var means []float64
	total := 0.0
	for b := range batches {
		sum := 0.0
		for _, v := range values[b*size : (b+1)*size] {
			sum += v
		}
		means = append(means, sum/float64(size))
		total += sum / float64(size)
	}
	mean, squares := total/batches, 0.0
	for _, m := range means {
		squares += (m - mean) * (m - mean)
	}
	return estimate{mean, math.Sqrt(squares / (batches - 1) / batches)}
}

// simulateWaiting returns the share of requests that waited and the mean wait in seconds, over n
// requests after a warm-up that is not counted.
func simulateWaiting(rng *rand.Rand, rate float64, hold func() float64, servers, n int) (share, wait estimate) {
	free := make([]float64, servers) // when servers become free
	waited, waits := make([]float64, 0, n), make([]float64, 0, n)
	now := 0.0
	for i := -n / 10; i < n; i++ {
		now += rng.ExpFloat64() / rate
		start := max(now, free[0]) // FIFO: the next request gets the first free server
		replaceFirst(free, start+hold())
		if i < 0 {
			continue
		}
		waits = append(waits, start-now)
		if start > now {
			waited = append(waited, 1)
		} else {
			waited = append(waited, 0)
		}
	}
	return batchMeans(waited), batchMeans(waits)
}

// Erlang C is an approximation if holds are not exponential. This test bounds its error for pools
// of the size that Places returns.
func TestErlangCIsCloseForLognormalHolds(t *testing.T) {
	for _, c := range []struct {
		name     string
		rate     float64
		p50, p99 time.Duration
	}{
		{"small pool", 100, 80 * time.Millisecond, 250 * time.Millisecond},
		{"p99 three times p50", 20000.0 / 12, 80 * time.Millisecond, 250 * time.Millisecond},
		{"p99 ten times p50", 2000, 20 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := DefaultPlanInput()
			in.Rate, in.P50, in.P99, in.Replicas = c.rate, c.p50, c.p99, 1
			plan, err := Plan(in)
			testsupport.NoError(t, err)
			rng := rand.New(rand.NewPCG(9, 1))
			share, wait := simulateWaiting(rng, c.rate, lognormalHold(rng, c.p50, c.p99), plan.Places, 1_000_000)
			t.Logf("N %d: share %.4f ± %.4f, planned %.4f; wait %.1f ± %.1f µs, planned %.1f",
				plan.Places, share.mean, 4*share.standardError, plan.WaitingShare,
				wait.mean*1e6, 4e6*wait.standardError, plan.MeanWait.Seconds()*1e6)
			near(t, "share that waits", plan.WaitingShare, share.mean, 4*share.standardError+0.1*share.mean)
			near(t, "mean wait, s", plan.MeanWait.Seconds(), wait.mean, 4*wait.standardError+0.4*wait.mean)
		})
	}
}
