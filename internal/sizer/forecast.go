package sizer

import (
	"math"
	"slices"
	"time"
)

const (
	forecastMinutes = 15
	forecastMost    = 30 * time.Minute
	// certainty is how much the slope must exceed its standard error. A flat load with noise seldom
	// has such a slope.
	certainty = 5
)

// Forecast says when a pool is full if its load grows on as in the last 15 minutes. It is not safe for
// concurrent use.
type Forecast struct {
	minute []int // demand in each second of the current minute
	peaks  [forecastMinutes]float64
	n      int // whole minutes so far
}

// Clone returns a copy.
func (f *Forecast) Clone() Forecast {
	c := *f
	c.minute = slices.Clone(f.minute)
	return c
}

// Add takes the highest demand of a second: the places in use, and the requests that wait.
func (f *Forecast) Add(demand int) {
	f.minute = append(f.minute, demand)
	if len(f.minute) < 60 {
		return
	}
	slices.Sort(f.minute)
	f.peaks[f.n%len(f.peaks)] = float64(f.minute[len(f.minute)*95/100])
	f.n++
	f.minute = f.minute[:0]
}

// FullIn returns after how long the pool has no place left of ceiling. ok is false if that is not to be
// expected within 30 minutes. The slope is the median of the slopes between all pairs of minutes. H.
// Theil, "A rank-invariant method of linear and polynomial regression analysis", 1950.
func (f *Forecast) FullIn(ceiling int) (d time.Duration, ok bool) {
	if f.n < len(f.peaks) {
		return 0, false
	}
	var peaks [forecastMinutes]float64 // the oldest first
	for i := range peaks {
		peaks[i] = f.peaks[(f.n+i)%len(f.peaks)]
	}
	var slopes [forecastMinutes * (forecastMinutes - 1) / 2]float64
	n := 0
	for i := range peaks {
		for j := range i {
			slopes[n] = (peaks[i] - peaks[j]) / float64(i-j)
			n++
		}
	}
	slope := median(slopes[:])
	var offsets, residuals [forecastMinutes]float64
	for i, p := range peaks {
		offsets[i] = p - slope*float64(i)
	}
	offset := median(offsets[:])
	for i, p := range peaks {
		residuals[i] = math.Abs(p - slope*float64(i) - offset)
	}
	const normal = 1.4826 // standard deviations in a median deviation
	spread := math.Sqrt(forecastMinutes * (forecastMinutes*forecastMinutes - 1) / 12.0)
	deviation := normal * median(residuals[:]) / spread
	if slope <= 0 || slope < certainty*deviation {
		return 0, false
	}
	minutes := max(0, (float64(ceiling)-offset-slope*(forecastMinutes-1))/slope)
	d = time.Duration(minutes * float64(time.Minute))
	return d, minutes < forecastMost.Minutes()
}

// median sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
