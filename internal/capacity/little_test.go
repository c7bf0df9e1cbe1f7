package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %v, want %v ± %v", what, got, want, tolerance)
	}
}

func TestLoadIsRateTimesHold(t *testing.T) {
	// These are operators' questions, calculated by hand.
	near(t, "20,000/s held 80 ms", Load(20000, 80*time.Millisecond), 1600, 1e-9)
	near(t, "1,000/s held 80 ms", Load(1000, 80*time.Millisecond), 80, 1e-9)
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		if got := Load(rate, time.Second); got != 0 {
			t.Errorf("Load(%v, 1s) = %v, want 0", rate, got)
		}
	}
	if got := Load(10, -time.Second); got != 0 {
		t.Errorf("Load of a negative hold = %v, want 0", got)
	}
}

func TestFullRateOfFixedPoolsIsPlacesOverHold(t *testing.T) {
	near(t, "100 places, 1 s", FullRate(100, time.Second), 100, 1e-9)
	near(t, "100 places, 500 ms", FullRate(100, 500*time.Millisecond), 200, 1e-9)
	near(t, "512 places, 80 ms", FullRate(512, 80*time.Millisecond), 6400, 1e-9)
	near(t, "512 places, 200 ms", FullRate(512, 200*time.Millisecond), 2560, 1e-9)
	for _, places := range []float64{0, -3, math.NaN()} {
		if got := FullRate(places, time.Second); got != 0 {
			t.Errorf("FullRate(%v, 1s) = %v, want 0", places, got)
		}
	}
	if got := FullRate(5, 0); got != 0 {
		t.Errorf("FullRate without a hold = %v, want 0", got)
	}
}

func TestHeadroomIsOneWhenIdleZeroWhenFullAndNegativeBeyond(t *testing.T) {
	near(t, "idle", HeadroomRatio(0, 10), 1, 0)
	near(t, "half", HeadroomRatio(5, 10), 0.5, 0)
	near(t, "full", HeadroomRatio(10, 10), 0, 0)
	near(t, "overloaded", HeadroomRatio(15, 10), -0.5, 0)
	near(t, "no places", HeadroomRatio(15, 0), 0, 0)
}

func TestLognormalMeanMatchesSamplesWithThoseQuantiles(t *testing.T) {
	const p50, p99 = 80 * time.Millisecond, 250 * time.Millisecond
	// Draw samples from the distribution, and compare their quantiles and mean.
	rng := rand.New(rand.NewPCG(1, 2))
	hold := lognormalHold(rng, p50, p99)
	samples := make([]float64, 400_000)
	sum := 0.0
	for i := range samples {
		samples[i] = hold()
		sum += samples[i]
	}
	slices.Sort(samples)
	near(t, "median of the samples, s", samples[len(samples)/2], p50.Seconds(), 0.0005)
	near(t, "p99 of the samples, s", samples[len(samples)*99/100], p99.Seconds(), 0.003)
	near(t, "LognormalMean, s", lognormalMean(p50, p99).Seconds(), sum/float64(len(samples)), 0.0003)
}

func TestLognormalMeanWithoutTailIsTheMedian(t *testing.T) {
	for _, p99 := range []time.Duration{0, 10 * time.Millisecond, 80 * time.Millisecond} {
		if got := lognormalMean(80*time.Millisecond, p99); got != 80*time.Millisecond {
			t.Errorf("LognormalMean(80ms, %v) = %v, want 80ms", p99, got)
		}
	}
	if got := lognormalMean(0, time.Second); got != 0 {
		t.Errorf("LognormalMean without a median = %v, want 0", got)
	}
}

func TestLognormalMeanThatFitsNoDurationIsTheLongestOne(t *testing.T) {
	if got := lognormalMean(1, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("LognormalMean(1ns, longest) = %v, want the longest Duration", got)
	}
}
