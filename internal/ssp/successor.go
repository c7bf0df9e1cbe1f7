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
type ledger struct {
	made     time.Time // what times within an SSP count from
	stats    *stats
	inFlight InFlight
	buffered *upstream.Budget // of responses; see Options.MaxBufferedBytes
	observer atomic.Pointer[Observer]
	shed     shedCounts
	heeded   retryAfters
}

func newLedger() *ledger {
	return &ledger{made: time.Now(), stats: newStats(), buffered: new(upstream.Budget)}
}

// lessons are what an SSP's endpoints have taught: it stays while they do.
type lessons struct {
	pause    pause        // of backoff
	window   tally.Window // of breaker
	adaptive adaptive
	budget   retryBudget
	late     quantile // of latency; from there on a request is hedged
}

// newLessons returns what knows nothing yet, and sets the limit on what is in
// flight.
func newLessons(o *Options, k *ledger) *lessons {
	l := new(lessons)
	l.window.Init(o.Breaker.Window, k.now())
	k.inFlight.SetLimit(o.MaxInFlight)
	l.adaptive.init(o.Adaptive, o.MaxInFlight, &k.inFlight)
	l.budget.init()
	l.late.init(o.Hedge.Quantile)
	return l
}

// settle works out what follows from the settings.
func (s *SSP) settle() {
	limit := s.opts.MaxBufferedBytes
	if limit == 0 {
		limit = math.MaxInt64
	}
	s.buffered.SetLimit(limit)
	s.source = []byte("ssp/" + s.opts.Name)
	s.patience = s.opts.Patience
	if t := s.opts.RequestTimeout; t > 0 {
		s.patience = min(s.patience, t)
	}
	s.plain = s.opts.Policy.With(httpheader.NameValue{Name: "Accept-Encoding", Value: "identity"})
	s.backoff = backoff{max: s.opts.RetryAfterMax, share: s.opts.RetryAfterShare, pause: &s.pause, heeded: &s.heeded}
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
	next.pool, next.lender, next.lessons = s.pool, s.lender, s.lessons
	now := s.now()
	next.window.SetLength(o.Breaker.Window, now)
	next.adaptive.set(o.Adaptive, o.MaxInFlight, now)
	next.late.set(o.Hedge.Quantile)
	next.settle()
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
	s.adaptive.retire()
	next.lender, next.lessons = l, newLessons(&o, s.ledger)
	next.settle()
	return next
}

func (s *SSP) successor(o Options) *SSP {
	if o.Name != s.opts.Name {
		panic("BUG: the name of an SSP never changes")
	}
	next := &SSP{opts: o, ledger: s.ledger, qps: s.qps}
	if o.QPS != s.opts.QPS {
		next.qps = s.qps.successor(o.QPS, s.ledger)
	}
	return next
}

// successor returns a bucket with other settings, from which as many tokens are
// missing.
func (q *qps) successor(o QPSOptions, k *ledger) *qps {
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
func (k *ledger) now() time.Duration { return k.since(time.Now()) }

// since is t as the parts of the SSP count time.
func (k *ledger) since(t time.Time) time.Duration { return t.Sub(k.made) }
