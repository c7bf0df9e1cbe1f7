// Package ssp is one SSP: limits, breaker, retries and hedges around its pool.
//
// A request passes these checks in order: the SSP's Retry-After (backoff), the breaker, the choice among the requests of
// a limit (shape), queries per second (qps), and requests in flight (max_in_flight). Then it acquires a place from the
// pool, takes its token of the queries per second, and is sent. After an error it is sent again if
// that is safe (retry). A slow request gets a second attempt beside the first if hedging is on
// (hedge).
package ssp

import (
	"context"
	"time"

	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tcf"
	"adbuffer/internal/wire/tracing"
)

// SSP sends requests to one SSP. It is safe for concurrent use. Its owner closes the pool.
//
// Its settings never change: With and MovedTo make another SSP from it, which continues its
// counters. So all attempts of a request have the same settings, and reading them costs no
// synchronization.
type SSP struct {
	opts       Options
	pool       *pool.Pool
	lender     lender // pool
	source     []byte
	uncoded    *header.Policy // opts.Policy, for requests with WantsUncoded
	blameAfter time.Duration
	backoff    backoff      // settings, with the state in learned
	breaker    breaker      // settings, with the state in learned
	qps        *qps         // shared with successors while the qps settings are the same
	shape      *shape       // nil without qps.shape
	overloads  refusal[int] // by the limit in flight

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
	s.shape = newShape(&opts, nil, s.made)
	s.learned = newLearned(&opts, s.counters)
	s.applyOptions()
	return s
}

// Name returns the SSP's name, the value of the label `ssp`.
func (s *SSP) Name() string { return s.opts.Name }

// SourceBytes returns "ssp/<name>", the X-Adbuffer-Source of its responses. The caller must not
// change it.
func (s *SSP) SourceBytes() []byte { return s.source }

// Pool returns the SSP's pool.
func (s *SSP) Pool() *pool.Pool { return s.pool }

// MaxInFlight returns max_in_flight, 0 for none.
func (s *SSP) MaxInFlight() int { return s.opts.MaxInFlight }

// Edit returns how bodies are edited for the SSP, or nil.
func (s *SSP) Edit() *openrtb.Edit { return s.opts.Edit }

// When returns the conditions on the body without which a route does not ask s.
func (s *SSP) When() []openrtb.Condition { return s.opts.When }

// RewritesTmax reports whether rewrite_tmax is set.
func (s *SSP) RewritesTmax() bool { return s.opts.RewriteTmax }

// MaxResponseBytes returns max_response_bytes.
func (s *SSP) MaxResponseBytes() int { return s.opts.MaxResponseBytes }

// Refusing reports whether an operator has drained or disabled the SSP, or all its
// endpoints. Its requests end as ssp_disabled then.
func (s *SSP) Refusing() bool { return s.lender.Refusing() }

// SetRejecting says whether the SSP rejects most requests, by responses with a status of 4xx. Then they are failures for
// logs, but not for the breaker or an endpoint: the cause may be in the requests.
func (s *SSP) SetRejecting(rejects bool) { s.rejecting.Store(rejects) }

// Failed reports whether a request that ended with o is a failure for logs. x is its exchange, or nil. A request that is
// too large for the SSP is, though the client is to blame: its fill is lost each time, and the SSP's share of them is
// small.
func (s *SSP) Failed(o exchange.Outcome, x *exchange.Exchange) bool {
	return o.IsFailure() || o == exchange.TooLarge || o == exchange.ClientError && (s.rejecting.Load() || x != nil && x.RefusedForSize())
}

// Policy returns the policy that decides which header fields are forwarded.
func (s *SSP) Policy() *header.Policy { return s.opts.Policy }

// Request is a client's request, which all of its legs share. Legs only read it. While a leg runs,
// neither the request nor the memory that it refers to may change.
type Request struct {
	Method   exchange.Method
	Query    []byte // raw, without the question mark and adbuffer's control parameter
	Fields   *header.RequestFields
	Identity *header.Identity
	Body     []byte
	// TmaxStart and TmaxEnd are the offsets of the digits of an OpenRTB tmax in Body; they are
	// equal if there is none.
	TmaxStart, TmaxEnd int

	Received     time.Time // when its last byte was read
	Deadline     time.Time
	DeadlineFrom string // the field or setting that Deadline follows from
	// Gone reports whether the client has closed its connection. It is called before a request that
	// waited is sent. It is nil if this is unknown.
	Gone func() bool
	// Context ends when the client closes its connection. Then the exchange ends, and the outcome
	// is ClientGone. It is nil if this is unknown.
	Context context.Context
	// Budget bounds the response's body, and copies of the request's body.
	Budget *exchange.Budget
	// CPU bounds the decoding of responses; nil for no bound.
	CPU *cpushare.Share
	// Held is how many bytes of Budget the request holds. While a leg runs, they count in its SSP's
	// share too.
	Held int64
	// Trace is nil for a request that is not traced.
	Trace *tracing.Request
	// Facts are what the route's conditions need to know of Body; nil if it has none.
	Facts *openrtb.Facts
	// Consent is what Body says of the user's consent; nil if that has not been read.
	Consent *tcf.Consent
	// Fairness is nil without server.fairness.key.
	Fairness *FairnessKey
	// Unreadable is why no Edit can be applied to Body.
	Unreadable openrtb.Reason
	// Misfits are the Edits that cannot be applied to Body because of openrtb.WrongType.
	Misfits []*openrtb.Edit
	// WantsUncoded asks for a response without content coding, whatever the client accepts.
	WantsUncoded bool
}

// Observer is called for each finished request to s, with its settings during the request. It runs
// on the request's goroutine, so it must be quick, and keep only copies of r and ex. err is nil if
// ex has a response. A hedged request's ex.Request is empty.
type Observer func(s *SSP, r *Request, ex *exchange.Exchange, o exchange.Outcome, err *exchange.Error)

// Observe makes f the Observer of all later requests, also of s's successors, until stop is called. ok
// is false if there is one already. Without an Observer a request costs one atomic load.
func (s *SSP) Observe(f Observer) (stop func(), ok bool) {
	return func() { s.observer.Store(nil) }, s.observer.CompareAndSwap(nil, &f)
}
