package shaper

import (
	"math"
	"time"
)

const (
	slots    = 60  // minutes that a ledger remembers, with the running one
	coldUpTo = 100 // fills without which the loss is not known
	ranges   = 8   // of the score in a report
)

// State says what a shaper knows.
type State uint8

// The states of a shaper.
const (
	Cold     State = iota // fewer than 100 fills so far: the loss is not known
	Learning              // outcomes teach
	Paused                // the SSP gives no fills at all: no-bids teach nothing until the next fill
)

func (s State) String() string { return [...]string{"cold", "learning", "paused"}[s] }

// Report is what a shaper did, and what it cost.
type Report struct {
	State  State
	Paused bool // also while cold

	Requests [3]uint64 // decisions so far, by Kind
	Fills    [2]uint64 // fills so far of requests that passed, and of explored ones

	// LostFills estimates the fills of dropped requests so far, LostVariance the variance of that estimate.
	LostFills, LostVariance float64

	TenMinutes, Hour Window // both with the running minute

	Threshold float64 // score from which requests pass; 0 lets everything pass
	Explore   float64 // probability with which a request below the threshold is sent
	Segments  int     // prefixes in the table, of at most 8 192

	Ranges [ranges]Range // the last hour by score, lowest first

	// Kept is what limits of some shares of the requests of the last ten minutes, and the limit in force, would keep of the
	// fills, the lowest limit first. It is nil while State is Cold, and if there were no requests.
	Kept []Kept
}

// Window is what a shaper did in a time that ends now.
type Window struct {
	Time              time.Duration // less than the window's length while the shaper is younger
	Arrivals, Dropped float64

	// The share of the fills that was lost with what was dropped: an estimate, and the bounds of its 95 % interval.
	// All are 0 while State is Cold.
	Low, Estimate, High float64
}

// Range is what became of the requests whose score was from From up to the next range's From.
type Range struct {
	From     float64
	Arrivals float64
	Sent     float64
	Expected float64 // fills of sent requests by their scores
	Fills    float64 // fills measured
}

// minute counts what happened in one minute.
type minute struct {
	requests       [3]float64 // by Kind
	unsent         float64    // explored, but not sent; in a dry run 0
	fills          float64    // received
	lost, variance float64    // Σw and Σw² of explored fills, as if all explored requests had been sent
	ranges         [ranges]Range
}

// ledger counts what a shaper did.
type ledger struct {
	minutes [slots]minute // a ring
	minute  int64         // the running one, as a count since the shaper began

	requests       [3]uint64
	fills          [2]uint64
	lost, variance float64

	explored, unsent float64 // explored requests, and those that were not sent; both halve each minute
}

// advance enters the minute of the given second.
func (l *ledger) advance(second int64) {
	now := second / 60
	for n := max(l.minute+1, now-slots+1); n <= now; n++ {
		l.minutes[n%slots] = minute{}
		l.explored, l.unsent = l.explored/2, l.unsent/2
	}
	l.minute = now
}

// running returns the running minute.
func (l *ledger) running() *minute { return &l.minutes[l.minute%slots] }

// decided counts a decision.
func (l *ledger) decided(d *Decision) {
	l.requests[d.would]++
	m := l.running()
	m.requests[d.would]++
	if d.would == Explored {
		l.explored++
	}
	rg := &m.ranges[int(d.bucket)*ranges/buckets]
	rg.Arrivals++
	if d.Kind != Dropped {
		rg.Sent++
	}
}

// takeBack takes back that the request was sent.
func (l *ledger) takeBack(d *Decision) {
	m := l.running()
	m.ranges[int(d.bucket)*ranges/buckets].Sent--
	if d.Kind == Explored {
		m.unsent++
		l.unsent++
	}
}

// hourByScore returns the last hour by ranges of the score.
func (l *ledger) hourByScore() [ranges]Range {
	sum := l.last(slots)
	for i := range sum.ranges {
		sum.ranges[i].From = math.Exp2(float64(i)*buckets/ranges/octave - buckets/octave)
	}
	sum.ranges[0].From = 0
	return sum.ranges
}

// outcome counts the outcome of a request that was sent. In a dry run, fills below the threshold are lost fills.
func (l *ledger) outcome(d *Decision, fill bool) {
	m := l.running()
	rg := &m.ranges[int(d.bucket)*ranges/buckets]
	rg.Expected += d.Score
	if !fill {
		return
	}
	rg.Fills++
	if d.would != Dropped {
		l.fills[d.would]++
	}
	if d.would == Passed {
		m.fills++
		return
	}
	w, scale := 1.0, 1.0
	if d.Kind == Explored { // not a dry run
		m.fills++
		w, scale = d.weight-1, inverseShare(l.explored, l.unsent)
	}
	m.lost += w
	m.variance += w * w
	l.lost += w * scale
	l.variance += w * scale * w * scale
}

// inverseShare returns what the weight of an explored fill is multiplied by, since some explored requests were not
// sent.
func inverseShare(explored, unsent float64) float64 {
	if unsent >= explored {
		return 1
	}
	return explored / (explored - unsent)
}

// last returns the sums of the given count of minutes, of which the last one is running.
func (l *ledger) last(minutes int64) (sum minute) {
	for n := max(0, l.minute-minutes+1); n <= l.minute; n++ {
		sum.add(&l.minutes[n%slots])
	}
	return sum
}

// window returns what happened in the given count of minutes, of which the last one is running. second is the running
// one, and weight what the next explored fill will count.
func (l *ledger) window(minutes, second int64, weight float64) Window {
	sum := l.last(minutes)
	w := Window{
		Time:     time.Duration(second+1-60*max(0, l.minute-minutes+1)) * time.Second,
		Arrivals: sum.requests[Passed] + sum.requests[Explored] + sum.requests[Dropped],
		Dropped:  sum.requests[Dropped],
	}
	if l.cold() || w.Dropped == 0 {
		return w
	}
	scale := inverseShare(sum.requests[Explored], sum.unsent)
	lost := sum.lost * scale
	low, high := interval(lost, sum.variance*scale*scale, weight*scale)
	share := func(lost float64) float64 {
		if lost == 0 {
			return 0
		}
		return lost / (lost + sum.fills)
	}
	w.Low, w.Estimate, w.High = share(low), share(lost), share(high)
	return w
}

// cold reports whether there were too few fills to know the loss.
func (l *ledger) cold() bool { return l.fills[Passed]+l.fills[Explored] < coldUpTo }

// add adds the counts of n.
func (m *minute) add(n *minute) {
	for i := range m.requests {
		m.requests[i] += n.requests[i]
	}
	m.unsent += n.unsent
	m.fills += n.fills
	m.lost += n.lost
	m.variance += n.variance
	for i := range m.ranges {
		m.ranges[i].Arrivals += n.ranges[i].Arrivals
		m.ranges[i].Sent += n.ranges[i].Sent
		m.ranges[i].Expected += n.ranges[i].Expected
		m.ranges[i].Fills += n.ranges[i].Fills
	}
}

// interval returns the bounds of the 95 % interval of Fay and Feuer (Statistics in Medicine 16, 1997) for a weighted
// sum of Poisson counts. variance is the sum of the squared weights, and weight that of the next count.
func interval(sum, variance, weight float64) (low, high float64) {
	const z = 1.96
	if variance > 0 {
		k := sum * sum / variance
		low = sum * cube(max(0, 1-1/(9*k)-z/(3*math.Sqrt(k))))
	}
	return low, upperBound(z, sum, variance, weight)
}

// upperBound is the upper bound of that interval. z is the quantile of the normal distribution.
func upperBound(z, sum, variance, weight float64) float64 {
	if sum, variance = sum+weight, variance+weight*weight; variance == 0 {
		return 0
	}
	k := sum * sum / variance
	return sum * cube(1-1/(9*k)+z/(3*math.Sqrt(k)))
}

func cube(x float64) float64 { return x * x * x }
