package capacity

import (
	"math"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	testsupport.True(t, math.Abs(got-want) <= tolerance, "%s = %v, want %v ± %v", what, got, want, tolerance)
}

func TestLoadIsRateTimesHold(t *testing.T) {
	// These are operators' questions, calculated by hand.
	near(t, "20,000/s held 80 ms", Load(20000, 80*time.Millisecond), 1600, 1e-9)
	near(t, "1,000/s held 80 ms", Load(1000, 80*time.Millisecond), 80, 1e-9)
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		testsupport.Equal(t, Load(rate, time.Second), 0, "Load(%[2]v, 1s) = %[1]v", rate)
	}
	testsupport.Equal(t, Load(10, -time.Second), 0, "Load of a negative hold = %v")
}

func TestFullRateOfFixedPoolsIsPlacesOverHold(t *testing.T) {
	near(t, "100 places, 1 s", FullRate(100, time.Second), 100, 1e-9)
	near(t, "100 places, 500 ms", FullRate(100, 500*time.Millisecond), 200, 1e-9)
	near(t, "512 places, 80 ms", FullRate(512, 80*time.Millisecond), 6400, 1e-9)
	near(t, "512 places, 200 ms", FullRate(512, 200*time.Millisecond), 2560, 1e-9)
	for _, places := range []float64{0, -3, math.NaN()} {
		testsupport.Equal(t, FullRate(places, time.Second), 0, "FullRate(%[2]v, 1s) = %[1]v", places)
	}
	testsupport.Equal(t, FullRate(5, 0), 0, "FullRate without a hold = %v")
}

func TestHeadroomIsOneWhenIdleZeroWhenFullAndNegativeBeyond(t *testing.T) {
	near(t, "idle", HeadroomRatio(0, 10), 1, 0)
	near(t, "half", HeadroomRatio(5, 10), 0.5, 0)
	near(t, "full", HeadroomRatio(10, 10), 0, 0)
	near(t, "overloaded", HeadroomRatio(15, 10), -0.5, 0)
	near(t, "no places", HeadroomRatio(15, 0), 0, 0)
}

func TestLognormalMeanWithoutTailIsTheMedian(t *testing.T) {
	for _, p99 := range []time.Duration{0, 10 * time.Millisecond, 80 * time.Millisecond} {
		testsupport.Equal(t, lognormalMean(80*time.Millisecond, p99), 80*time.Millisecond, "LognormalMean(80ms, %[2]v) = %[1]v", p99)
	}
	testsupport.Equal(t, lognormalMean(0, time.Second), 0, "LognormalMean without a median = %v")
}

func TestLognormalMeanThatFitsNoDurationIsTheLongestOne(t *testing.T) {
	testsupport.Equal(t, lognormalMean(1, math.MaxInt64), math.MaxInt64, "LognormalMean(1ns, longest) = %v, want the longest Duration")
}
