package sizer

import (
	"math"
	"time"

	"adbuffer/internal/machine/capacity"
)

// needed returns the places that a load needs if its arrivals come in bursts of this peakedness. It scales the load
// by the peakedness: W. Whitt, "Heavy-traffic approximations for service systems with blocking", AT&T Bell
// Laboratories Technical Journal 63(5), 1984.
func needed(rate float64, hold time.Duration, peakedness, waitingShare float64) int {
	return int(math.Ceil(peakedness * float64(capacity.Places(rate/peakedness, hold, waitingShare))))
}

// timedSample is a sample with its time, and with the sum of InUse over all samples so far.
type timedSample struct {
	at       time.Time
	inUseSum uint64
	Sample
}

// window holds the samples of the last ten seconds, and the sample before them.
type window struct {
	ring [int(10*time.Second/Interval) + 1]timedSample
	n    int // number of samples that were ever added
}

func (w *window) add(now time.Time, x Sample) {
	used := uint64(x.InUse)
	if w.n > 0 {
		used += w.at(0).inUseSum
	}
	w.ring[w.n%len(w.ring)] = timedSample{now, used, x}
	w.n++
}

func (w *window) last() (x Sample, ok bool) {
	if w.n == 0 {
		return x, false
	}
	return w.at(0).Sample, true
}

// at returns the sample that came i samples before the newest.
func (w *window) at(i int) *timedSample { return &w.ring[(w.n-1-i)%len(w.ring)] }

// since returns the sample of d ago, or the oldest sample if none is so old, and the newest sample.
func (w *window) since(d time.Duration) (first, last *timedSample) {
	return w.at(w.samplesWithin(d)), w.at(0)
}

// meanInUse returns the mean number of places in use over the last d.
func (w *window) meanInUse(d time.Duration) float64 {
	n := max(1, w.samplesWithin(d))
	if n >= w.n {
		return float64(w.at(0).InUse)
	}
	return float64(w.at(0).inUseSum-w.at(n).inUseSum) / float64(n)
}

// samplesWithin returns how many samples came in the last d.
func (w *window) samplesWithin(d time.Duration) int {
	return min(int((d+Interval-1)/Interval), w.n-1, len(w.ring)-1)
}

// arrivals holds how many requests arrived in each interval of the last minute.
type arrivals struct {
	ring         [int(time.Minute / Interval)]uint64
	n            int
	sum          uint64
	squaredSteps uint64 // sum of the squared differences between neighbouring intervals
}

func (a *arrivals) add(n uint64) {
	size := len(a.ring)
	if a.n > 0 {
		a.squaredSteps += square(n, a.ring[(a.n-1)%size])
	}
	if a.n >= size {
		oldest, second := a.ring[a.n%size], a.ring[(a.n+1)%size]
		a.sum -= oldest
		a.squaredSteps -= square(oldest, second)
	}
	a.ring[a.n%size] = n
	a.sum += n
	a.n++
}

func square(a, b uint64) uint64 {
	d := max(a, b) - min(a, b)
	return d * d
}

// peakedness returns how bursty the arrivals are: 1 for a Poisson process, more for bursts, at most 8. Only
// neighbouring intervals are compared, so that a trend does not count as a burst. bursts is the share of the excess
// over 1 that counts.
func (a *arrivals) peakedness(bursts float64) float64 {
	n := min(a.n, len(a.ring))
	if n < 2 || a.sum == 0 {
		return 1
	}
	mean := float64(a.sum) / float64(n)
	half := float64(a.squaredSteps) / float64(n-1) / 2
	return min(max(1+bursts*(half/mean-1), 1), 8)
}

// needs holds the largest need of each of the last minutes.
type needs struct {
	ring        [shrinkMinutes]int
	n           int // number of whole minutes so far
	current     int
	began       time.Time // start of the current minute
	minuteEnded bool      // a minute has ended since the last call of takeMinuteEnded
}

func (s *needs) record(now time.Time, need int) {
	if s.began.IsZero() {
		s.began = now
	}
	s.current = max(s.current, need)
	if now.Sub(s.began) < time.Minute {
		return
	}
	s.ring[s.n%len(s.ring)] = s.current
	s.n++
	s.began, s.current, s.minuteEnded = now, 0, true
}

// takeMinuteEnded reports whether a minute has ended since its last call.
func (s *needs) takeMinuteEnded() bool {
	turned := s.minuteEnded
	s.minuteEnded = false
	return turned
}

// largest returns the largest need of the last minutes. whole says that shrinkMinutes whole minutes are known.
func (s *needs) largest() (most int, whole bool) {
	for _, n := range s.ring[:min(s.n, len(s.ring))] {
		most = max(most, n)
	}
	return most, s.n >= len(s.ring)
}
