// Package ssp is one SSP: limits, breaker, retry around its pool.
//
// A request passes, in this order: the pause that the SSP asked for (backoff),
// the breaker, the limit on queries per second, the limit on what is in flight
// (max_in_flight, and the adaptive one). Then it is lent a place by the pool,
// takes its token of the queries per second, and is sent; again where that is
// safe (retry), and twice at once where hedging is on and it is late (hedge).
package ssp

import (
	"time"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// SSP sends requests to one SSP. It is safe for concurrent use. Its owner
// closes the pool.
//
// Its settings never change: With and MovedTo make another SSP of it, which goes
// on counting where it stands. So a request finds the same settings from its
// first attempt to its last, and pays nothing for their being changeable.
type SSP struct {
	opts       Options
	pool       *pool.Pool
	lender     lender // pool
	source     []byte
	plain      *httpheader.Policy // opts.Policy, for requests that are Plain
	blameAfter time.Duration
	backoff    backoff // settings, on the state in lessons
	breaker    breaker // as above
	qps        *qps    // its successors', while the settings qps are the same

	*counters
	*learned
}

// New returns an SSP on p.
func New(opts Options, p *pool.Pool) *SSP {
	s := newSSP(opts, poolLender{p})
	s.pool = p
	return s
}

func newSSP(opts Options, l lender) *SSP {
	s := &SSP{opts: opts, lender: l, qps: new(qps), counters: newCounters()}
	s.qps.init(opts.QPS, s.made)
	s.learned = newLearned(&opts, s.counters)
	s.applyOptions()
	return s
}

// Name returns the SSP's name, the value of the label `ssp`.
func (s *SSP) Name() string { return s.opts.Name }

// SourceBytes returns "ssp/<name>", which X-Adbuffer-Source says of its answers.
// It must not be changed.
func (s *SSP) SourceBytes() []byte { return s.source }

// Pool returns the SSP's pool.
func (s *SSP) Pool() *pool.Pool { return s.pool }

// MaxInFlight returns max_in_flight, the SSP's own limit on what is in flight,
// 0 for none. The adaptive limit may be lower, see Snapshot.
func (s *SSP) MaxInFlight() int { return s.opts.MaxInFlight }

// Policy says which header fields cross.
func (s *SSP) Policy() *httpheader.Policy { return s.opts.Policy }

// Request is a client's request, as all of its legs share it. Legs only read
// it; it must not change, nor the memory behind it be reused, while one runs.
type Request struct {
	Method   upstream.Method
	Query    []byte // raw, without the question mark and our control parameter
	Fields   *httpheader.RequestFields
	Identity *httpheader.Identity
	Body     []byte
	// TmaxStart and TmaxEnd are where the digits of an OpenRTB tmax stand in
	// Body; equal where there is none.
	TmaxStart, TmaxEnd int

	Received time.Time // when it had been read whole
	Deadline time.Time
	// Gone reports whether the client has left. It is asked before a request
	// that waited is sent. Nil where nobody can tell.
	Gone func() bool
	// Budget bounds the answer's body, and copies of the request's.
	Budget *upstream.Budget
	// Plain asks for an answer without content coding, whatever the client
	// would take.
	Plain bool
}
