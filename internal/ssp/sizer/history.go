package sizer

import (
	"math"
	"time"

	"adbuffer/internal/machine/capacity"
)

// needed returns the places that a load needs, for arrivals that come in bursts. The square-root rule
// for bursts scales the load: W. Whitt, "Heavy-traffic approximations for service systems with
// blocking", AT&T Bell Laboratories Technical Journal 63(5), 1984.
func needed(rate float64, hold time.Duration, peakedness, waitingShare float64) int {
	return int(math.Ceil(peakedness * float64(capacity.Places(rate/peakedness, hold, waitingShare))))
}

// stamped is a sample with its time, and the sum of the places in use of all samples so far.
type stamped struct {
	at   time.Time
	used uint64
	Sample
}

// window holds the samples of the last ten seconds, and one more.
type window struct {
	ring [int(10*time.Second/Interval) + 1]stamped
	n    int // samples so far
}

func (w *window) add(now time.Time, x Sample) {
	used := uint64(x.InUse)
	if w.n > 0 {
		used += w.at(0).used
	}
	w.ring[w.n%len(w.ring)] = stamped{now, used, x}
	w.n++
}

func (w *window) last() (x Sample, ok bool) {
	if w.n == 0 {
		return x, false
	}
	return w.at(0).Sample, true
}

// at returns the i-th last sample.
func (w *window) at(i int) *stamped { return &w.ring[(w.n-1-i)%len(w.ring)] }

// since returns the sample of d ago, or the oldest one, and the newest one.
func (w *window) since(d time.Duration) (first, last *stamped) {
	return w.at(w.ago(d)), w.at(0)
}

// used returns the mean of the places in use over the last d.
func (w *window) used(d time.Duration) float64 {
	n := max(1, w.ago(d))
	if n >= w.n {
		return float64(w.at(0).InUse)
	}
	return float64(w.at(0).used-w.at(n).used) / float64(n)
}

// ago returns how many samples came in the last d.
func (w *window) ago(d time.Duration) int {
	return min(int((d+Interval-1)/Interval), w.n-1, len(w.ring)-1)
}

// arrivals holds how many requests arrived in each interval of the last minute.
type arrivals struct {
	ring    [int(time.Minute / Interval)]uint64
	n       int
	sum     uint64
	squares uint64 // of the differences between neighbours
}

func (a *arrivals) add(n uint64) {
	size := len(a.ring)
	if a.n > 0 {
		a.squares += square(n, a.ring[(a.n-1)%size])
	}
	if a.n >= size {
		oldest, second := a.ring[a.n%size], a.ring[(a.n+1)%size]
		a.sum -= oldest
		a.squares -= square(oldest, second)
	}
	a.ring[a.n%size] = n
	a.sum += n
	a.n++
}

func square(a, b uint64) uint64 {
	d := max(a, b) - min(a, b)
	return d * d
}

// peakedness returns how bursty the arrivals are: 1 for a Poisson process, at most 8. A trend is no
// burst, since only neighbours are compared. bursts is the share of the excess that counts.
func (a *arrivals) peakedness(bursts float64) float64 {
	n := min(a.n, len(a.ring))
	if n < 2 || a.sum == 0 {
		return 1
	}
	mean := float64(a.sum) / float64(n)
	half := float64(a.squares) / float64(n-1) / 2
	return min(max(1+bursts*(half/mean-1), 1), 8)
}

// needs holds the largest need of each of the last minutes.
type needs struct {
	ring    [shrinkMinutes]int
	n       int // whole minutes so far
	current int
	began   time.Time // of the current minute
	turn    bool      // a minute has ended since turned was last called
}

func (s *needs) note(now time.Time, need int) {
	if s.began.IsZero() {
		s.began = now
	}
	s.current = max(s.current, need)
	if now.Sub(s.began) < time.Minute {
		return
	}
	s.ring[s.n%len(s.ring)] = s.current
	s.n++
	s.began, s.current, s.turn = now, 0, true
}

// turned reports whether a minute has ended since the last call.
func (s *needs) turned() bool {
	turned := s.turn
	s.turn = false
	return turned
}

// most returns the largest need of the last minutes. whole says that there are as many as are needed.
func (s *needs) most() (most int, whole bool) {
	for _, n := range s.ring[:min(s.n, len(s.ring))] {
		most = max(most, n)
	}
	return most, s.n >= len(s.ring)
}
