// Package ssp is one SSP: limits, breaker, retry around its pool.
package ssp

import (
	"fmt"
	"time"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// Options are the settings of an SSP; see config/adbuffer.yaml for what each
// does.
type Options struct {
	Name string
	// Scheme, Authority, Path and Query are the endpoints' common URL: "https",
	// the Host that is sent unless HostOverride, the raw path, and the raw query
	// without its question mark.
	Scheme, Path, Query string
	// Host is sent in place of the host of the endpoint that was connected to.
	Host string

	Policy *httpheader.Policy

	RequestTimeout time.Duration // 0 = the deadline alone
	MaxInFlight    int           // 0 = no limit but the global one
	RetryMax       int
	RetryStale     RetryStale
	NoBidBody      NoBidBody
	// PipelineAll lets POST share a pipelined connection with others.
	PipelineAll bool
}

// RetryStale is what is done with a request whose reused HTTP/1 connection
// closed before the first byte of an answer.
type RetryStale uint8

// The values of `retry.stale`.
const (
	StaleIdempotent RetryStale = iota // send GET and HEAD again
	StaleAll                          // send anything again, at the risk of its being processed twice
	StaleNever
)

// SSP sends requests to one SSP. It is safe for concurrent use. Its owner
// closes the pool.
type SSP struct {
	opts     Options
	pool     *pool.Pool
	inFlight InFlight
	budget   retryBudget
	stats    *stats
	source   []byte
	plain    *httpheader.Policy // opts.Policy, for requests that are Plain
}

// New returns an SSP on p.
func New(opts Options, p *pool.Pool) *SSP {
	s := &SSP{opts: opts, pool: p, stats: newStats(), source: []byte("ssp/" + opts.Name)}
	s.plain = opts.Policy.With(httpheader.NameValue{Name: "Accept-Encoding", Value: "identity"})
	s.inFlight.SetLimit(opts.MaxInFlight)
	s.budget.init()
	return s
}

// Name returns the SSP's name, the value of the label `ssp`.
func (s *SSP) Name() string { return s.opts.Name }

// SourceBytes returns "ssp/<name>", which X-Adbuffer-Source says of its answers.
// It must not be changed.
func (s *SSP) SourceBytes() []byte { return s.source }

// Pool returns the SSP's pool.
func (s *SSP) Pool() *pool.Pool { return s.pool }

// MaxInFlight returns the SSP's own limit on what is in flight, 0 for none.
func (s *SSP) MaxInFlight() int { return s.inFlight.Limit() }

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

	Received time.Time // when it had been read whole
	Deadline time.Time
	// Patient: the client gives the SSP at least the default deadline, so that
	// a timeout says something about the SSP.
	Patient bool
	// Gone reports whether the client has left. It is asked before a request
	// that waited is sent. Nil where nobody can tell.
	Gone func() bool
	// Budget bounds the answer's body.
	Budget *upstream.Budget
	// Plain asks for an answer without content coding, whatever the client
	// would take.
	Plain bool
}

// Do sends r to the SSP through ex, at most until the deadline, and again where
// that is safe. It returns how it ended; err is nil where there is an answer,
// which ex holds then.
//
// ex must be new, with its Context set where the leg can be cancelled, and
// Times.Queued where the caller has just asked the clock. timeout is the leg's
// own limit, 0 for none.
func (s *SSP) Do(r *Request, ex *upstream.Exchange, timeout time.Duration) (upstream.Outcome, *upstream.Error) {
	start := ex.Times.Queued
	if start.IsZero() {
		start = time.Now()
		ex.Times.Queued = start
	}
	ex.Deadline = s.deadline(r, start, timeout)
	ex.Budget = r.Budget
	outcome, err := s.admitAndSend(r, ex)
	if err != nil {
		outcome = err.Outcome
		if ex.Times.Done.IsZero() {
			ex.Times.Done = time.Now()
		}
	}
	s.stats.ended(outcome, start, &ex.Times)
	return outcome, err
}

// deadline is the earliest of the request's, the SSP's and the leg's.
func (s *SSP) deadline(r *Request, start time.Time, timeout time.Duration) time.Time {
	d := r.Deadline
	for _, t := range [...]time.Duration{s.opts.RequestTimeout, timeout} {
		if t > 0 {
			if at := start.Add(t); at.Before(d) {
				d = at
			}
		}
	}
	return d
}

func (s *SSP) admitAndSend(r *Request, ex *upstream.Exchange) (upstream.Outcome, *upstream.Error) {
	if !s.inFlight.Enter() {
		return 0, &upstream.Error{
			Outcome: upstream.Overloaded, Progress: upstream.NotSent,
			Detail: fmt.Sprintf("%d of %d requests to it are in flight; see ssps[].max_in_flight", s.inFlight.Limit(), s.inFlight.Limit()),
		}
	}
	defer s.inFlight.Leave()
	s.budget.earn()
	if err := s.send(r, ex); err != nil {
		return 0, err
	}
	return s.classify(r, &ex.Answer), nil
}

// send makes attempts until one has an answer, or must be the last.
func (s *SSP) send(r *Request, ex *upstream.Exchange) *upstream.Error {
	var retries retryCount
	for {
		err := s.attempt(r, ex)
		if err == nil {
			return nil
		}
		e := upstream.AsError(err)
		kind, again := s.retryable(r, e, &retries)
		if !again || !time.Now().Before(ex.Deadline) {
			return e
		}
		s.stats.retries[kind].Add(1)
		ex.ReleaseBody()
		ex.Answer.Reset()
		queued := ex.Times.Queued
		ex.Times = upstream.Times{Queued: queued}
	}
}

// attempt lends a place, writes the leg's own head, and runs the exchange.
func (s *SSP) attempt(r *Request, ex *upstream.Exchange) error {
	place, err := s.pool.Acquire(ex)
	if err != nil {
		return err
	}
	if r.Gone != nil && ex.Times.Lent.Sub(ex.Times.Queued) > goneAfter && r.Gone() {
		place.Return()
		return errClientGone
	}
	s.write(r, ex, place.Host())
	s.stats.sent.Add(1)
	return place.Do(ex)
}

// goneAfter is how long a request must have waited before it is worth a system
// call to see whether its client is still there.
const goneAfter = time.Millisecond

var errClientGone = &upstream.Error{Outcome: upstream.ClientGone, Progress: upstream.NotSent}

// write makes the leg's own head in ex.Block: target, then the fields that
// cross.
func (s *SSP) write(r *Request, ex *upstream.Exchange, host string) {
	b := ex.Block[:0]
	b = append(b, s.opts.Path...)
	sep := byte('?')
	if s.opts.Query != "" {
		b = append(append(b, sep), s.opts.Query...)
		sep = '&'
	}
	if len(r.Query) > 0 {
		b = append(append(b, sep), r.Query...)
	}
	target := len(b)
	if s.opts.Host != "" {
		host = s.opts.Host
	}
	b = append(b, host...)
	authority := len(b)
	policy := s.opts.Policy
	if r.Plain {
		policy = s.plain
	}
	b = policy.AppendRequest(b, r.Fields, r.Identity)
	ex.Block = b
	ex.Request = upstream.Request{
		Method: r.Method, Scheme: s.opts.Scheme, Target: b[:target], Authority: b[target:authority],
		Fields: b[authority:], Body: r.Body,
	}
}
