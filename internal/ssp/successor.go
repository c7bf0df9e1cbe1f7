package ssp

import (
	"math"
	"sync/atomic"
	"time"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/pool"
	"adbuffer/internal/tally"
	"adbuffer/internal/upstream"
)

// ledger is what stays with an SSP's name, whatever its settings and endpoints
// become: what was counted, and what is in flight.
type counters struct {
	made        time.Time // what times within an SSP count from
	stats       *stats
	inFlight    InFlight
	buffered    *upstream.Budget // of responses; see Options.MaxBufferedBytes
	observer    atomic.Pointer[Observer]
	shed        shedCounts
	retryAfters retryAfters
}

func newCounters() *counters {
	return &counters{made: time.Now(), stats: newStats(), buffered: new(upstream.Budget)}
}

// lessons are what an SSP's endpoints have taught: it stays while they do.
type learned struct {
	pause     pause        // of backoff
	window    tally.Window // of breaker
	adaptive  adaptive
	budget    retryBudget
	lateAfter quantile // of latency; from there on a request is hedged
}

// newLessons returns what knows nothing yet, and sets the limit on what is in
// flight.
func newLearned(o *Options, k *counters) *learned {
	l := new(learned)
	l.window.Init(o.Breaker.Window, k.now())
	k.inFlight.SetLimit(o.MaxInFlight)
	l.adaptive.init(o.Adaptive, o.MaxInFlight, &k.inFlight)
	l.budget.init()
	l.lateAfter.init(o.Hedge.Quantile)
	return l
}

// settle works out what follows from the settings.
func (s *SSP) applyOptions() {
	limit := s.opts.MaxBufferedBytes
	if limit == 0 {
		limit = math.MaxInt64
	}
	s.buffered.SetLimit(limit)
	s.source = []byte("ssp/" + s.opts.Name)
	s.blameAfter = s.opts.BlameAfter
	if t := s.opts.RequestTimeout; t > 0 {
		s.blameAfter = min(s.blameAfter, t)
	}
	s.plain = s.opts.Policy.With(httpheader.NameValue{Name: "Accept-Encoding", Value: "identity"})
	s.backoff = backoff{max: s.opts.RetryAfterMax, share: s.opts.RetryAfterShare, pause: &s.pause, retryAfters: &s.retryAfters}
	s.breaker = breaker{opts: s.opts.Breaker, Window: &s.window, shedCounts: &s.shed}
}

// With returns the SSP with other settings, on the same pool. Counters, breaker,
// pause, adaptive limit, rate and what else it knows go on. Requests that have
// begun on s end with its settings, and count all the same; but for limits: those
// on what is in flight or buffered, and on the length of a pause, hold for all
// from now on.
//
// An SSP has one successor, made by With or MovedTo; the name stays.
func (s *SSP) With(o Options) *SSP {
	next := s.successor(o)
	next.pool, next.lender, next.learned = s.pool, s.lender, s.learned
	now := s.now()
	next.window.SetLength(o.Breaker.Window, now)
	next.adaptive.set(o.Adaptive, o.MaxInFlight, now)
	next.lateAfter.set(o.Hedge.Quantile)
	next.applyOptions()
	next.backoff.shorten(now)
	return next
}

// MovedTo returns the SSP with other settings, on another pool, which leads to
// other endpoints, or speaks to them in another way: what was learned of them is
// forgotten. What was counted stays, and so do the places that requests which
// began on s take of max_in_flight.
func (s *SSP) MovedTo(o Options, p *pool.Pool) *SSP {
	next := s.movedTo(o, poolLender{p})
	next.pool = p
	return next
}

func (s *SSP) movedTo(o Options, l lender) *SSP {
	next := s.successor(o)
	s.adaptive.detach()
	next.lender, next.learned = l, newLearned(&o, s.counters)
	next.applyOptions()
	return next
}

func (s *SSP) successor(o Options) *SSP {
	if o.Name != s.opts.Name {
		panic("BUG: the name of an SSP never changes")
	}
	next := &SSP{opts: o, counters: s.counters, qps: s.qps}
	if o.QPS != s.opts.QPS {
		next.qps = s.qps.successor(o.QPS, s.counters)
	}
	return next
}

// successor returns a bucket with other settings, from which as many tokens are
// missing.
func (q *qps) successor(o QPSOptions, k *counters) *qps {
	next, now := &qps{limited: q.limited}, k.now()
	next.init(o, k.made)
	// A bucket that is full stays at 0: no request that was delayed may find that
	// it became full only just now.
	if wait := math.Float64frombits(q.full.Load()) - float64(now); wait > 0 && q.interval > 0 && next.interval > 0 {
		missing := min(wait/q.interval, float64(next.opts.Burst))
		next.full.Store(math.Float64bits(float64(now) + missing*next.interval))
	}
	return next
}

// now is the time as the parts of the SSP count it.
func (k *counters) now() time.Duration { return k.since(time.Now()) }

// since is t as the parts of the SSP count time.
func (k *counters) since(t time.Time) time.Duration { return t.Sub(k.made) }
