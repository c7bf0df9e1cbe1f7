// Package sizer decides how many places a pool may have: its limit. The limit grows if requests wait for it, each
// growth is kept or taken back depending on the SSP's goodput, and the limit shrinks to what was needed. Latency
// neither causes growth nor forbids it. The package has no sockets and no clock: the caller passes a [Sample] each
// [Interval].
package sizer

import (
	"math"
	"math/rand/v2"
	"time"
)

// Interval is the time between two samples.
const Interval = 100 * time.Millisecond

// Sample holds a pool's counts since its start, and its current state.
type Sample struct {
	Arrivals  uint64        // requests that needed a place, including requests that got none
	Waits     uint64        // requests that had to wait although the limit allowed no further dial
	Successes uint64        // responses before the deadline
	Releases  uint64        // places that requests gave back
	Held      time.Duration // sum of the times for which released places were in use
	InUse     int           // places that are in use or being dialled
	// Frozen says that something other than the limit holds requests back: a breaker, a pause of the SSP, or ejected
	// endpoints. While it is set, the limit neither grows nor shrinks.
	Frozen bool
}

// Limits bound what a Sizer decides, in places.
type Limits struct {
	Min, Max int
	// DryRun says that the pool keeps its configured size, and only reports decisions. Since requests then do not
	// wait for the limit, the limit follows the need, without verdicts.
	DryRun bool
}

// rules are the constants of the algorithm. They were tuned in the simulation of this package's tests,
// which also shows what fails without each of them.
type rules struct {
	// waitingShare is the share of requests that may wait for a place.
	waitingShare float64
	// minWaits is how many requests must have waited before the limit grows, since a few waits may be chance.
	minWaits uint64
	// A shortage is judged over the time since the last change, which must be at least minJudged. Of a longer time,
	// the last maxJudged counts.
	minJudged, maxJudged time.Duration
	// recentTime is the time within which requests must still wait. Otherwise a burst that is over would cause
	// growth.
	recentTime time.Duration
	// growth is the factor by which the limit may grow until a verdict.
	growth float64
	// freeBelow is the limit up to which growth needs no verdict.
	freeBelow int
	// rateTime is the time over which the rate of arrivals is measured. holdTime is the time over which the mean hold
	// of places is measured.
	rateTime, holdTime time.Duration
	// bursts is the share of the peakedness above 1 that counts.
	bursts float64
	// calmTime is how long there must be no shortage until a growth counts as right without a verdict.
	calmTime time.Duration
	// settleTime is the shortest time between a growth and the start of the measurement for its verdict.
	settleTime time.Duration
	// How many places must be released before a verdict: usefulReleases before a success, uselessReleases before a
	// failure.
	usefulReleases, uselessReleases uint64
	// minSuccessTime is the shortest measurement before a success, and minFailureTime before a failure. In shorter
	// times, use and goodput are mostly chance.
	minSuccessTime, minFailureTime time.Duration
	// verdictTime is the length of the measurement after which there is a verdict, however few places were released.
	verdictTime time.Duration
	// After a failed growth, the limit does not grow for firstPause. After each further failure the pause is longer
	// by the factor pauseGrowth, up to maxPause.
	firstPause, maxPause time.Duration
	pauseGrowth          float64
	// The limit shrinks to the largest need of the last shrinkMinutes if that is less than shrinkBelow times the
	// limit.
	shrinkBelow float64
	// Over several growths, goodput must grow at least by the factor of the use, raised to the power of minGain.
	minGain float64
	// minServed is the share of the arrivals with a response in time from which on earlier growths are not judged
	// again.
	minServed float64
	// maxPerNeed is the highest limit, as a multiple of the need.
	maxPerNeed float64
}

const shrinkMinutes = 15

var standard = rules{
	waitingShare: 0.03, minWaits: 10, minJudged: 500 * time.Millisecond, maxJudged: 10 * time.Second, recentTime: 300 * time.Millisecond,
	growth: 1.25, freeBelow: 64, rateTime: 2 * time.Second, holdTime: 10 * time.Second, bursts: 0.75, calmTime: 10 * time.Second,
	settleTime: 200 * time.Millisecond, usefulReleases: 500, uselessReleases: 2000, minSuccessTime: 300 * time.Millisecond, minFailureTime: 1500 * time.Millisecond, verdictTime: 10 * time.Second,
	firstPause: 10 * time.Second, maxPause: 32 * time.Minute, pauseGrowth: 2, shrinkBelow: 0.8, minGain: 0.5, minServed: 0.75, maxPerNeed: 1,
}

// Sizer decides the limit of one pool. Its zero value is not usable: see [New]. It is not safe for
// concurrent use.
type Sizer struct {
	rules
	limits Limits
	limit  int
	random func() float64 // returns numbers from 0 to 1

	recent  window   // samples of the last ten seconds
	arrived arrivals // arrivals per interval of the last minute
	needs   needs    // the largest need of each of the last minutes

	need          int       // the last result of computeNeed
	computed      time.Time // when need was last computed
	changed       time.Time // when the limit last changed
	shortAt       time.Time // when requests last waited for the limit
	anchor        anchor    // the state before the growth that waits for its verdict; zero if there is none
	firstAnchor   anchor    // the state before the first growth since there was last no shortage for calmTime
	pause         time.Duration
	pausedUntil   time.Time
	reportedPause time.Time // the value of pausedUntil for which Held was decided
}

// anchor is the state before a growth that has no verdict yet.
type anchor struct {
	places      int     // the limit; 0 = the anchor is not set
	inUse       float64 // mean places in use or being dialled
	goodput     float64 // successes per second
	judgedFrom  time.Time
	atJudgement Sample
}

// Kind is what a decision does.
type Kind uint8

// The kinds of decisions.
const (
	Grown    Kind = iota + 1 // requests waited, so the limit is higher
	Verified                 // goodput followed the growth
	Reverted                 // goodput did not follow the growth, or cannot be judged now, so the limit is as before the growth
	Shrunk                   // less was needed for 15 minutes, so the limit is lower
	Held                     // requests wait, but the limit stays, since an earlier growth did not help
	Kinds
)

// String returns the kind as metrics and logs name it.
func (k Kind) String() string {
	return [...]string{"none", "grown", "verified", "reverted", "shrunk", "held"}[k]
}

// MarshalText returns the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Decision is a change of the limit, or a reason not to change it, with its inputs.
type Decision struct {
	At      time.Time     `json:"at"`
	Kind    Kind          `json:"kind"`
	From    int           `json:"from"` // places
	To      int           `json:"to"`
	Need    int           `json:"need"`    // places that Erlang's formula gives for the load
	Waiting float64       `json:"waiting"` // share of the arrivals that waited for the limit
	Used    float64       `json:"used"`    // mean places in use or being dialled
	Goodput float64       `json:"goodput"` // responses before the deadline per second
	Hold    time.Duration `json:"-"`       // how long the limit cannot grow, for Reverted and Held; 0 if goodput was not judged
}

// New returns a Sizer with this initial limit. random returns numbers from 0 to 1; nil = math/rand.
func New(l Limits, limit int, random func() float64) *Sizer {
	if random == nil {
		random = rand.Float64
	}
	s := &Sizer{rules: standard, random: random, limit: limit}
	s.SetLimits(l)
	return s
}

// Clone returns a Sizer for a pool that replaces this Sizer's pool. It has no samples.
func (s *Sizer) Clone() *Sizer {
	c := *s
	c.recent, c.anchor, c.firstAnchor = window{}, anchor{}, anchor{}
	return &c
}

// Limit returns how many places the pool may have now.
func (s *Sizer) Limit() int { return s.limit }

// Need returns how many places the load needed when the need was last computed.
func (s *Sizer) Need() int { return s.need }

// HeldFor returns for how long the limit cannot grow, because an earlier growth did not help.
func (s *Sizer) HeldFor(now time.Time) time.Duration { return max(0, s.pausedUntil.Sub(now)) }

// SetLimits changes the bounds. It keeps what was learned, but drops a pending verdict.
func (s *Sizer) SetLimits(l Limits) {
	l.Max = max(1, l.Max)
	l.Min = min(max(1, l.Min), l.Max)
	s.limits, s.anchor, s.firstAnchor = l, anchor{}, anchor{}
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
		s.needs.record(now, s.need)
	}
	if x.Frozen {
		return s.freeze(now)
	}
	short, rates := s.shortage(now)
	if short {
		s.shortAt = now
	} else if now.Sub(s.shortAt) >= s.calmTime {
		s.anchor, s.firstAnchor, s.pause, s.pausedUntil = anchor{}, anchor{}, 0, time.Time{}
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

// freeze takes back a growth that waits for its verdict. Whatever holds requests back now has probably caused the
// shortage too, and goodput can no longer be judged.
func (s *Sizer) freeze(now time.Time) (d Decision, ok bool) {
	if back := s.anchor.places; back > 0 && s.limit > back {
		d, ok = Decision{At: now, Kind: Reverted, From: s.limit, To: back, Need: s.need, Used: s.recent.meanInUse(s.holdTime)}, true
		s.limit = back
	}
	s.anchor, s.firstAnchor, s.changed = anchor{}, anchor{}, now
	return d, ok
}

// rates holds what was measured over a part of the last ten seconds.
type rates struct{ waiting, used, goodput float64 }

// shortage reports whether too many requests have waited for the limit, both since its last change and within
// recentTime.
func (s *Sizer) shortage(now time.Time) (short bool, r rates) {
	since := now.Sub(s.changed)
	if since < s.minJudged {
		return false, r
	}
	first, last := s.recent.since(min(since, s.maxJudged))
	waits := last.Waits - first.Waits
	r.used = s.recent.meanInUse(min(since, s.maxJudged))
	if n := last.Arrivals - first.Arrivals; n > 0 {
		r.waiting = float64(waits) / float64(n)
	}
	if t := last.at.Sub(first.at); t > 0 {
		r.goodput = float64(last.Successes-first.Successes) / t.Seconds()
	}
	just, _ := s.recent.since(s.recentTime)
	recently := float64(last.Waits-just.Waits) > s.waitingShare*float64(last.Arrivals-just.Arrivals)
	return waits >= s.minWaits && r.waiting > s.waitingShare && recently, r
}

// grow raises the limit to the need, or as far as it may grow before the next verdict.
func (s *Sizer) grow(now time.Time, r rates, d *Decision) bool {
	s.computeNeed(now)
	highest := min(int(s.maxPerNeed*float64(s.need)), s.limits.Max)
	if highest <= s.limit {
		return false
	}
	if now.Before(s.pausedUntil) {
		if s.reportedPause.Equal(s.pausedUntil) {
			return false // one Held for each pause
		}
		d.Kind, d.Hold, s.reportedPause = Held, s.pausedUntil.Sub(now), s.pausedUntil
		return true
	}
	from := s.limit
	if s.anchor.places > 0 {
		from = s.anchor.places
	}
	to := min(highest, max(s.freeBelow, int(math.Ceil(s.growth*float64(from)))))
	if to <= s.limit {
		return false // further growth needs the verdict first
	}
	if s.anchor.places == 0 && to > s.freeBelow {
		s.anchor = anchor{places: s.limit, inUse: r.used, goodput: r.goodput}
		if s.firstAnchor.places == 0 {
			s.firstAnchor = s.anchor
		}
	}
	s.limit, s.changed, d.Kind = to, now, Grown
	s.anchor.judgedFrom = time.Time{}
	return true
}

// verdict judges the last growth, by comparing goodput and use with those before it.
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
	if judged < s.minSuccessTime || releases < s.usefulReleases && judged < s.verdictTime {
		return false
	}
	used := s.recent.meanInUse(judged)
	goodput := float64(x.Successes-a.atJudgement.Successes) / judged.Seconds()
	d.Used, d.Goodput = used, goodput
	useless, to := a.useless(used, goodput), a.places
	served := goodput >= s.minServed*float64(x.Arrivals-a.atJudgement.Arrivals)/judged.Seconds()
	if !useless && !served && s.firstAnchor.outgrown(used, goodput, s.minGain) {
		useless, to = true, s.firstAnchor.places
	}
	switch {
	case !useless:
		d.Kind = Verified
		*a = anchor{places: s.limit, inUse: used, goodput: goodput}
	case releases >= s.uselessReleases && judged >= s.minFailureTime || judged >= s.verdictTime:
		s.pause = min(max(s.firstPause, time.Duration(s.pauseGrowth*float64(s.pause))), s.maxPause)
		d.Kind, d.Hold = Reverted, time.Duration(float64(s.pause)*(0.75+s.random()/2))
		s.limit, s.pausedUntil, s.changed = to, now.Add(d.Hold), now
		s.anchor = anchor{}
	default:
		return false
	}
	return true
}

// useless reports whether goodput has not followed the use of places.
func (a *anchor) useless(used, goodput float64) bool {
	more := a.useRatio(used)
	if goodput == 0 || more > 1.1 {
		return goodput == 0 || goodput < a.goodput*math.Sqrt(more)
	}
	return goodput < a.goodput/2 // hardly more places are in use: a burst has ended
}

// outgrown reports whether all growths since the anchor together were useless. Each of them may have seemed useful,
// because the pools of other replicas lost what this pool gained.
func (a *anchor) outgrown(used, goodput, worth float64) bool {
	more := used / float64(max(1, a.places))
	return more > 1.5 && goodput < a.goodput*math.Pow(more, worth)
}

// useRatio returns the factor by which more places are in use than before the growth.
func (a *anchor) useRatio(used float64) float64 {
	if a.inUse == 0 {
		return math.Inf(1)
	}
	return used / a.inUse
}

// shrink lowers the limit to the largest need of the last minutes.
func (s *Sizer) shrink(now time.Time, d *Decision) bool {
	if s.anchor.places > 0 || !s.needs.takeMinuteEnded() {
		return false
	}
	most, whole := s.needs.largest()
	if !whole || float64(most) >= s.shrinkBelow*float64(s.limit) {
		return false
	}
	s.limit, s.changed, d.Kind = max(most, s.limits.Min), now, Shrunk
	return true
}

// computeNeed computes the need from the rate of the last rateTime and the mean hold.
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
