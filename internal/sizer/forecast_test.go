package sizer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

// feed adds a minute of demand around a mean.
func feed(f *Forecast, rng *rand.Rand, mean float64) {
	for range 60 {
		f.Add(int(math.Round(mean + math.Sqrt(mean)*rng.NormFloat64())))
	}
}

func TestForecastOfARampComesTrue(t *testing.T) {
	const ceiling = 400
	right, below, lead := 0, 0, 0.0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		slope := 2 + 8*rng.Float64() // places a minute
		var f Forecast
		first := 0.0
		for minute := 0; ; minute++ {
			mean := 100 + slope*float64(minute)
			feed(&f, rng, mean)
			full := (ceiling - 1.645*math.Sqrt(ceiling) - mean) / slope // minutes until the 95th percentile is there
			if full <= 0 {
				break
			}
			if d, ok := f.FullIn(ceiling); ok && d < 10*time.Minute {
				below++
				if first == 0 {
					first = full
				}
				if math.Abs(d.Minutes()-full) < 3 {
					right++
				}
			}
		}
		lead += first / 20
	}
	testsupport.True(t, below != 0 && float64(right) >= 0.8*float64(below) && lead >= 5, "%d of %d forecasts came true, and the first came %.1f minutes before", right, below, lead)
}

func TestAFlatLoadGivesNoForecast(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	var f Forecast
	alarms, was := 0, false
	for range 24 * 60 {
		feed(&f, rng, 100)
		_, is := f.FullIn(140)
		if is && !was {
			alarms++
		}
		was = is
	}
	testsupport.True(t, alarms <= 1, "%d forecasts in 24 hours", alarms)
}

func TestForecastNeedsFifteenMinutes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var f Forecast
	for i := range forecastMinutes {
		_, ok := f.FullIn(100)
		testsupport.MustTrue(t, !ok, "a forecast after %d minutes", i)
		feed(&f, rng, 10+10*float64(i))
	}
	d, ok := f.FullIn(100)
	testsupport.True(t, ok && d <= time.Minute, "a full pool: %v, %v", d, ok)
}
