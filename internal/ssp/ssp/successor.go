package ssp

import (
	"math"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// counters holds the state that stays with an SSP's name when its settings and endpoints change:
// counters, and requests in flight.
type counters struct {
	made        time.Time // times within an SSP count from it
	stats       *stats
	inFlight    InFlight
	buffered    *exchange.Budget // see Options.MaxBufferedBytes
	observer    atomic.Pointer[Observer]
	shed        shedCounts
	retryAfters retryAfters
	rejecting   atomic.Bool // see SSP.SetRejecting
}

func newCounters() *counters {
	return &counters{made: time.Now(), stats: newStats(), buffered: new(exchange.Budget)}
}

// learned holds the state that the SSP has learned from its endpoints. It stays while the endpoints
// stay.
type learned struct {
	pause     pause        // of backoff
	window    rates.Window // of breaker
	forgot    atomic.Uint64
	budget    retryBudget
	lateAfter quantile // of latencies; an attempt that takes longer is late and is hedged
	codings   map[Coding]*codingTrial
}

// newLearned returns an empty learned.
func newLearned(o *Options, k *counters) *learned {
	l := &learned{codings: map[Coding]*codingTrial{CodingGzip: {}, CodingZstd: {}}}
	l.pause.max.Store(int64(o.RetryAfterMax))
	l.pause.recent.Init(time.Second, k.now())
	l.window.Init(o.Breaker.Window, k.now())
	l.budget.init()
	l.lateAfter.init(o.Hedge.Quantile)
	return l
}

// applyOptions derives values from the settings.
func (s *SSP) applyOptions() {
	limit := s.opts.MaxBufferedBytes
	if limit == 0 {
		limit = math.MaxInt64
	}
	s.buffered.SetLimit(limit)
	s.inFlight.SetLimit(s.opts.MaxInFlight)
	s.source = []byte("ssp/" + s.opts.Name)
	s.blameAfter = s.opts.BlameAfter
	if t := s.opts.RequestTimeout; t > 0 {
		s.blameAfter = min(s.blameAfter, t)
	}
	s.uncoded = s.opts.Policy.With(header.NameValue{Name: "Accept-Encoding", Value: "identity"})
	s.backoff = backoff{share: s.opts.RetryAfterShare, pause: &s.pause, retryAfters: &s.retryAfters}
	s.breaker = breaker{opts: s.opts.Breaker, Window: &s.window, shedCounts: &s.shed, lender: s.lender, forgot: &s.forgot}
}

// With returns the SSP with other settings, on the same pool. Counters, breaker, pause, rate
// and all other learned state continue; what the shaper learned continues while its keys stay.
// Requests that have begun on s end with its settings, and are counted. Three limits hold for all
// requests from now on: requests in flight, buffered bytes, and the length of a pause.
//
// An SSP has one successor, made by With or MovedTo. Its name stays.
func (s *SSP) With(o Options) *SSP {
	next := s.successor(o)
	next.pool, next.lender, next.learned = s.pool, s.lender, s.learned
	now := s.now()
	next.window.SetLength(o.Breaker.Window, now)
	next.lateAfter.set(o.Hedge.Quantile)
	next.pause.limit(o.RetryAfterMax, now)
	next.applyOptions()
	return next
}

// MovedTo returns the SSP with other settings, on another pool: with other endpoints, or another
// way of connecting to them. The learned state is dropped, except that of the shaper. Counters stay,
// and current requests on s still count in max_in_flight.
func (s *SSP) MovedTo(o Options, p *pool.Pool) *SSP {
	next := s.movedTo(o, poolLender{p})
	next.pool = p
	return next
}

func (s *SSP) movedTo(o Options, l lender) *SSP {
	next := s.successor(o)
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
	next.shape = newShape(&o, s.shape, time.Now())
	return next
}

// successor returns a bucket with other settings from which as many tokens are missing as from q.
func (q *qps) successor(o QPSOptions, k *counters) *qps {
	next, now := &qps{limited: q.limited}, k.now()
	next.init(o, k.made)
	// A full bucket stays at 0. Otherwise a delayed request could find that the bucket became full
	// only at this moment.
	if missing := q.bucket.Deficit(now); missing > 0 && o.Limit > 0 {
		burst := float64(next.opts.Burst)
		next.bucket.Start(now, o.Limit, burst, min(missing, burst))
	}
	return next
}

// now is the current time since the SSP was made.
func (k *counters) now() time.Duration { return k.since(time.Now()) }

// since returns t as a time since the SSP was made.
func (k *counters) since(t time.Time) time.Duration { return t.Sub(k.made) }
