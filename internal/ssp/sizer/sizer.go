// Package sizer decides how many places a pool may have. It grows for requests that wait, lets the
// SSP's goodput judge each growth, and shrinks to what was needed. Latency neither causes growth nor
// forbids it. It knows no sockets and no clock: the caller passes a [Sample] each [Interval].
package sizer

import (
	"math"
	"math/rand/v2"
	"time"
)

// Interval is the time between two samples.
const Interval = 100 * time.Millisecond

// Sample is what a pool has counted since it began, and what it holds now.
type Sample struct {
	Arrivals  uint64        // requests that needed a place, including requests that got none
	Waits     uint64        // requests that found all places open or being dialled, so no dial was allowed
	Successes uint64        // responses before the deadline
	Releases  uint64        // places that requests gave back
	Held      time.Duration // the time for which released places were in use, in sum
	InUse     int           // places that are in use or being dialled
	// Frozen says that something other than the limit holds requests back: a breaker, a pause or
	// ejected endpoints. Nothing grows or shrinks meanwhile.
	Frozen bool
}

// Limits bound what a Sizer decides, in places.
type Limits struct {
	Min, Max int
	// DryRun says that the pool keeps its configured size. Then requests do not wait for the limit, so
	// the limit follows the need, and there are no verdicts.
	DryRun bool
}

// rules are the constants of the algorithm. They were tuned in the simulation of this package's tests,
// which also shows what fails without each of them.
type rules struct {
	// waitingShare is the share of requests that may wait for a place.
	waitingShare float64
	// leastWaits is how many requests must have waited before the pool grows. A few waits are chance.
	leastWaits uint64
	// A shortage is judged over the time since the last change, within these bounds.
	leastJudged, mostJudged time.Duration
	// recentTime is how recent a shortage must be. Otherwise a burst that is over causes growth.
	recentTime time.Duration
	// growth is how far a pool grows until a verdict.
	growth float64
	// freeBelow is the number of places up to which a pool grows without a verdict.
	freeBelow int
	// rateTime is the time over which the rate of arrivals is measured, and holdTime that of the holds.
	rateTime, holdTime time.Duration
	// bursts is the share of the peakedness that counts.
	bursts float64
	// calmTime is how long there must be no shortage until the growth counts as right.
	calmTime time.Duration
	// settleTime is the least time between a growth and the measurement of its use.
	settleTime time.Duration
	// A verdict needs so many released places: few for a success, more for a failure.
	usefulReleases, uselessReleases uint64
	// leastVerdict is the shortest time for a success, and leastFailure for a failure. In less, use and
	// goodput are mostly chance.
	leastVerdict, leastFailure time.Duration
	// verdictTime is when a failure is decided, however few places were released.
	verdictTime time.Duration
	// After a failed growth, nothing grows for firstHold, then for longer by holdGrowth each time.
	firstHold, lastHold time.Duration
	holdGrowth          float64
	// A pool shrinks to the largest need of shrinkMinutes if that is below shrinkBelow of the limit.
	shrinkBelow float64
	// worth is the power of the use that goodput must reach over several growths.
	worth float64
	// mostServed is the share of the arrivals that must have a response for a growth to be right.
	mostServed float64
	// mostOfNeed is how far a pool may grow, as a multiple of its need.
	mostOfNeed float64
}

const shrinkMinutes = 15

var standard = rules{
	waitingShare: 0.03, leastWaits: 10, leastJudged: 500 * time.Millisecond, mostJudged: 10 * time.Second, recentTime: 300 * time.Millisecond,
	growth: 1.25, freeBelow: 64, rateTime: 2 * time.Second, holdTime: 10 * time.Second, bursts: 0.75, calmTime: 10 * time.Second,
	settleTime: 200 * time.Millisecond, usefulReleases: 500, uselessReleases: 2000, leastVerdict: 300 * time.Millisecond, leastFailure: 1500 * time.Millisecond, verdictTime: 10 * time.Second,
	firstHold: 10 * time.Second, lastHold: 32 * time.Minute, holdGrowth: 2, shrinkBelow: 0.8, worth: 0.5, mostServed: 0.75, mostOfNeed: 1,
}

// Sizer decides the limit of one pool. Its zero value is not usable: see [New]. It is not safe for
// concurrent use.
type Sizer struct {
	rules
	limits Limits
	limit  int
	random func() float64 // 0 to 1

	recent  window   // samples of the last ten seconds
	arrived arrivals // arrivals per interval of the last minute
	needs   needs    // the largest need of each of the last minutes

	need     int       // as last computed
	computed time.Time // when
	changed  time.Time // when the limit changed last
	shortAt  time.Time // when requests last waited for the limit
	anchor   anchor    // zero while no growth waits for its verdict
	first    anchor    // before the first growth since the last calm
	hold     time.Duration
	holdTill time.Time
	heldTill time.Time // the hold for which Held was decided
}

// anchor is the state before a growth whose use is not known.
type anchor struct {
	places      int     // 0 means that there is none
	used        float64 // mean places in use or being dialled
	goodput     float64 // successes per second
	judgedFrom  time.Time
	atJudgement Sample
}

// Kind is what a decision does.
type Kind uint8

// The kinds of decisions.
const (
	Grown    Kind = iota + 1 // requests waited: the limit is larger
	Verified                 // goodput followed the growth
	Reverted                 // goodput did not follow, or cannot be judged now: the limit is as before
	Shrunk                   // less was needed for 15 minutes
	Held                     // requests wait, and an earlier growth did not help
	Kinds
)

// String returns the kind as metrics and logs name it.
func (k Kind) String() string {
	return [...]string{"none", "grown", "verified", "reverted", "shrunk", "held"}[k]
}

// MarshalText returns the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Decision is a change of the limit, or the reason against one, with its inputs.
type Decision struct {
	At      time.Time     `json:"at"`
	Kind    Kind          `json:"kind"`
	From    int           `json:"from"` // places
	To      int           `json:"to"`
	Need    int           `json:"need"`    // places that Erlang's formula gives for the load
	Waiting float64       `json:"waiting"` // share of the arrivals that waited for the limit
	Used    float64       `json:"used"`    // mean places in use or being dialled
	Goodput float64       `json:"goodput"` // responses before the deadline per second
	Hold    time.Duration `json:"-"`       // how long nothing grows, after Reverted; 0 if goodput was not judged
}

// New returns a Sizer that begins with a limit. random returns numbers from 0 to 1.
func New(l Limits, limit int, random func() float64) *Sizer {
	if random == nil {
		random = rand.Float64
	}
	s := &Sizer{rules: standard, random: random, limit: limit}
	s.SetLimits(l)
	return s
}

// Clone returns a Sizer for a pool that replaces this one. Its samples begin anew.
func (s *Sizer) Clone() *Sizer {
	c := *s
	c.recent, c.anchor, c.first = window{}, anchor{}, anchor{}
	return &c
}

// Limit returns the places that the pool may have now.
func (s *Sizer) Limit() int { return s.limit }

// Need returns the places that the load needed when it was last computed.
func (s *Sizer) Need() int { return s.need }

// HeldFor returns how long nothing grows because an earlier growth did not help.
func (s *Sizer) HeldFor(now time.Time) time.Duration { return max(0, s.holdTill.Sub(now)) }

// SetLimits changes the bounds. It keeps what was learned, and ends a verdict that is being made.
func (s *Sizer) SetLimits(l Limits) {
	l.Max = max(1, l.Max)
	l.Min = min(max(1, l.Min), l.Max)
	s.limits, s.anchor, s.first = l, anchor{}, anchor{}
	s.limit = min(max(s.limit, l.Min), l.Max)
}

// Tick takes the sample of this interval. It returns at most one decision.
func (s *Sizer) Tick(now time.Time, x Sample) (d Decision, ok bool) {
	last, begun := s.recent.last()
	s.recent.add(now, x)
	if !begun {
		s.changed, s.shortAt = now, now
		return Decision{}, false
	}
	s.arrived.add(x.Arrivals - last.Arrivals)
	if now.Sub(s.computed) >= time.Second {
		s.computeNeed(now)
		s.needs.note(now, s.need)
	}
	if x.Frozen {
		return s.freeze(now)
	}
	short, rates := s.shortage(now)
	if short {
		s.shortAt = now
	} else if now.Sub(s.shortAt) >= s.calmTime {
		s.anchor, s.first, s.hold, s.holdTill = anchor{}, anchor{}, 0, time.Time{}
	}
	d = Decision{At: now, From: s.limit, To: s.limit, Waiting: rates.waiting, Used: rates.used, Goodput: rates.goodput}
	switch {
	case s.limits.DryRun && s.need > s.limit:
		s.limit, s.changed, d.Kind = s.need, now, Grown
	case s.limits.DryRun && s.shrink(now, &d):
	case s.limits.DryRun:
		return Decision{}, false
	case s.anchor.places > 0 && s.limit > s.anchor.places && s.verdict(now, x, &d):
	case short && s.grow(now, rates, &d):
	case s.shrink(now, &d):
	default:
		return Decision{}, false
	}
	d.To, d.Need = s.limit, s.need
	return d, true
}

// freeze takes back a growth that waits for its verdict. What holds requests back has probably caused the
// shortage, and the verdict cannot be made any more.
func (s *Sizer) freeze(now time.Time) (d Decision, ok bool) {
	if back := s.anchor.places; back > 0 && s.limit > back {
		d, ok = Decision{At: now, Kind: Reverted, From: s.limit, To: back, Need: s.need, Used: s.recent.used(s.holdTime)}, true
		s.limit = back
	}
	s.anchor, s.first, s.changed = anchor{}, anchor{}, now
	return d, ok
}

// rates are what happened in a part of the last ten seconds.
type rates struct{ waiting, used, goodput float64 }

// shortage reports whether too many requests wait for the limit, since its last change and just now.
func (s *Sizer) shortage(now time.Time) (short bool, r rates) {
	since := now.Sub(s.changed)
	if since < s.leastJudged {
		return false, r
	}
	first, last := s.recent.since(min(since, s.mostJudged))
	waits := last.Waits - first.Waits
	r.used = s.recent.used(min(since, s.mostJudged))
	if n := last.Arrivals - first.Arrivals; n > 0 {
		r.waiting = float64(waits) / float64(n)
	}
	if t := last.at.Sub(first.at); t > 0 {
		r.goodput = float64(last.Successes-first.Successes) / t.Seconds()
	}
	just, _ := s.recent.since(s.recentTime)
	recently := float64(last.Waits-just.Waits) > s.waitingShare*float64(last.Arrivals-just.Arrivals)
	return waits >= s.leastWaits && r.waiting > s.waitingShare && recently, r
}

// grow raises the limit to the need, as far as the next verdict allows.
func (s *Sizer) grow(now time.Time, r rates, d *Decision) bool {
	s.computeNeed(now)
	most := min(int(s.mostOfNeed*float64(s.need)), s.limits.Max)
	if most <= s.limit {
		return false
	}
	if now.Before(s.holdTill) {
		if s.heldTill.Equal(s.holdTill) {
			return false // one decision for each hold
		}
		d.Kind, d.Hold, s.heldTill = Held, s.holdTill.Sub(now), s.holdTill
		return true
	}
	from := s.limit
	if s.anchor.places > 0 {
		from = s.anchor.places
	}
	to := min(most, max(s.freeBelow, int(math.Ceil(s.growth*float64(from)))))
	if to <= s.limit {
		return false // the verdict comes first
	}
	if s.anchor.places == 0 && to > s.freeBelow {
		s.anchor = anchor{places: s.limit, used: r.used, goodput: r.goodput}
		if s.first.places == 0 {
			s.first = s.anchor
		}
	}
	s.limit, s.changed, d.Kind = to, now, Grown
	s.anchor.judgedFrom = time.Time{}
	return true
}

// verdict compares goodput and use with those before the growth.
func (s *Sizer) verdict(now time.Time, x Sample, d *Decision) bool {
	a := &s.anchor
	if a.judgedFrom.IsZero() {
		if now.Sub(s.changed) >= max(s.settleTime, 2*s.meanHold()) {
			a.judgedFrom, a.atJudgement = now, x
		}
		return false
	}
	judged := now.Sub(a.judgedFrom)
	releases := x.Releases - a.atJudgement.Releases
	if judged < s.leastVerdict || releases < s.usefulReleases && judged < s.verdictTime {
		return false
	}
	used := s.recent.used(judged)
	goodput := float64(x.Successes-a.atJudgement.Successes) / judged.Seconds()
	d.Used, d.Goodput = used, goodput
	useless, to := a.useless(used, goodput), a.places
	served := goodput >= s.mostServed*float64(x.Arrivals-a.atJudgement.Arrivals)/judged.Seconds()
	if !useless && !served && s.first.outgrown(used, goodput, s.worth) {
		useless, to = true, s.first.places
	}
	switch {
	case !useless:
		d.Kind = Verified
		*a = anchor{places: s.limit, used: used, goodput: goodput}
	case releases >= s.uselessReleases && judged >= s.leastFailure || judged >= s.verdictTime:
		s.hold = min(max(s.firstHold, time.Duration(s.holdGrowth*float64(s.hold))), s.lastHold)
		d.Kind, d.Hold = Reverted, time.Duration(float64(s.hold)*(0.75+s.random()/2))
		s.limit, s.holdTill, s.changed = to, now.Add(d.Hold), now
		s.anchor = anchor{}
	default:
		return false
	}
	return true
}

// useless reports whether goodput did not follow the use.
func (a *anchor) useless(used, goodput float64) bool {
	more := a.more(used)
	if goodput == 0 || more > 1.1 {
		return goodput == 0 || goodput < a.goodput*math.Sqrt(more)
	}
	return goodput < a.goodput/2 // the growth is hardly in use: a burst has ended
}

// outgrown reports whether several growths together were not worth it. Each may have seemed so, because
// the pools of other replicas lost what this one gained.
func (a *anchor) outgrown(used, goodput, worth float64) bool {
	more := used / float64(max(1, a.places))
	return more > 1.5 && goodput < a.goodput*math.Pow(more, worth)
}

// more returns how much more places are in use than before the growth.
func (a *anchor) more(used float64) float64 {
	if a.used == 0 {
		return math.Inf(1)
	}
	return used / a.used
}

// shrink lowers the limit to the largest need of the last minutes.
func (s *Sizer) shrink(now time.Time, d *Decision) bool {
	if s.anchor.places > 0 || !s.needs.turned() {
		return false
	}
	most, whole := s.needs.most()
	if !whole || float64(most) >= s.shrinkBelow*float64(s.limit) {
		return false
	}
	s.limit, s.changed, d.Kind = max(most, s.limits.Min), now, Shrunk
	return true
}

// computeNeed computes the need from the rate of the last seconds and the holds.
func (s *Sizer) computeNeed(now time.Time) {
	s.computed = now
	first, last := s.recent.since(s.rateTime)
	rate := 0.0
	if t := last.at.Sub(first.at); t > 0 {
		rate = float64(last.Arrivals-first.Arrivals) / t.Seconds()
	}
	s.need = min(max(needed(rate, s.meanHold(), s.arrived.peakedness(s.bursts), s.waitingShare), s.limits.Min), s.limits.Max)
}

func (s *Sizer) meanHold() time.Duration {
	first, last := s.recent.since(s.holdTime)
	if n := last.Releases - first.Releases; n > 0 {
		return (last.Held - first.Held) / time.Duration(n)
	}
	return 0
}
