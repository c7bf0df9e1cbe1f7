package ssp

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/tracing"
)

// call is one Do: a request at one SSP, with its attempts.
type call struct {
	start    time.Time
	client   rates.Group // of the client
	body     bodyCopy
	outcome  exchange.Outcome // of the last ended attempt
	paused   bool             // its response paused the SSP
	excluded bool             // it failed at an endpoint that is out while others serve
	sent     int              // attempts sent
	hedged   bool
	scored   bool // the shaper has scored the request: segment and decision are set
	segment  shaper.Segment
	decision shaper.Decision
	retries  retries
	trace    *tracing.Leg     // nil for a call that is not traced
	attempt  *tracing.Attempt // the current attempt; nil if trace is
}

// Do sends r to the SSP through ex, and retries if that is safe. It ends at the deadline at the
// latest, and returns the outcome. If err is nil, ex holds the response of the attempt that succeeded.
//
// ex must be new. The caller sets its Context if the call can be cancelled, and Times.Queued if it
// has just read the clock. timeout is the call's own limit, 0 for none. Afterwards, Times.Queued is
// when the call began, and Times.Done is when it failed, or when the attempt that succeeded ended. The
// other Times are those of that attempt, or of the last one.
func (s *SSP) Do(r *Request, ex *exchange.Exchange, timeout time.Duration) (exchange.Outcome, *exchange.Error) {
	start := ex.Times.Queued
	if start.IsZero() {
		start = time.Now()
		ex.Times.Queued = start
	}
	ex.Deadline, _, _ = s.deadline(r, start, timeout)
	ex.UsualTimeout, ex.Span = s.usualTimeout(), s.opts.Lag.Begin(start)
	ex.Budget, ex.Share = r.Budget, s.buffered
	c := call{start: start}
	if err := s.admit(r, &c); err != nil {
		ex.Times.Done = time.Now()
		s.shape.unsent(&c, ex.Times.Done)
		s.Refused(err.Outcome)
		r.Trace.Leg(s.opts.Name, r.Method).Ended(ex, err.Outcome, err)
		return err.Outcome, err
	}
	c.client, c.trace = r.Identity.Group(), r.Trace.Leg(s.opts.Name, r.Method)
	panicked := true
	defer func() {
		if panicked {
			ex.ReleaseBytes()
		}
		s.releaseCopyBytes(r, &c.body)
		s.buffered.Release(r.Held)
		s.inFlight.Release()
	}()
	s.budget.earn(c.client)
	err := s.send(r, ex, &c)
	if err != nil && err.Outcome == exchange.Cancelled && r.Context != nil && r.Context.Err() != nil {
		err = &exchange.Error{Outcome: exchange.ClientGone, Progress: err.Progress}
	}
	ex.Times.Queued, ex.Attempts = start, c.sent
	if err != nil || ex.Times.Done.IsZero() { // a hedge, or a pause before a retry, may have gone on after the attempt
		ex.Times.Done = time.Now()
	}
	if c.sent == 0 {
		s.shape.unsent(&c, ex.Times.Done)
	}
	outcome := c.outcome
	if err != nil {
		outcome, c.paused = err.Outcome, false
		if outcome == exchange.Deadline {
			err = s.overDeadline(err, r, start, timeout)
		}
	} else {
		s.stats.responseBytes.Observe(float64(len(ex.Response.Body)))
	}
	s.learn(ex, &c, outcome, err)
	s.stats.record(outcome, start, &ex.Times, r.Trace)
	if f := s.observer.Load(); f != nil {
		(*f)(s, r, ex, outcome, err)
	}
	c.trace.Ended(ex, outcome, err)
	panicked = false
	return outcome, err
}

// deadline returns the earliest of the deadlines of the request, the SSP and the call. limit is the time
// that this deadline allows in total, and from is the field or setting that it follows from.
func (s *SSP) deadline(r *Request, start time.Time, timeout time.Duration) (at time.Time, limit time.Duration, from string) {
	at, limit, from = r.Deadline, r.Deadline.Sub(r.Received), r.DeadlineFrom
	for _, t := range [...]struct {
		limit   time.Duration
		setting string
	}{{s.opts.RequestTimeout, "timeouts.request"}, {timeout, "routes[].ssps[].timeout"}} {
		if t.limit > 0 {
			if end := start.Add(t.limit); end.Before(at) {
				at, limit, from = end, t.limit, t.setting
			}
		}
	}
	return at, limit, from
}

// overDeadline returns e, the error of a call that its deadline ended, with that deadline and its origin.
func (s *SSP) overDeadline(e *exchange.Error, r *Request, start time.Time, timeout time.Duration) *exchange.Error {
	_, limit, see := s.deadline(r, start, timeout)
	if see == r.DeadlineFrom {
		see += " and deadline.reserve"
	}
	if e.Progress == exchange.NotSent {
		see += ", and pool.max_conns"
	}
	over := *e
	over.Detail = fmt.Sprintf("%s: the deadline was %v; see %s", e.Detail, limit.Round(time.Microsecond), see)
	return &over
}

// admit counts a request as in flight and its bytes as held. If the SSP may not get the request now, or if
// the request exceeds a limit, admit returns the error and counts neither.
func (s *SSP) admit(r *Request, c *call) *exchange.Error {
	now := s.since(c.start)
	if s.lender.Refusing() {
		return errDisabled
	}
	if err := s.backoff.refuse(now); err != nil {
		return err
	}
	if err := s.breaker.refuse(now); err != nil {
		return err
	}
	if s.shape != nil && r.Method != exchange.HEAD {
		if err := s.shape.decide(r, s.qps, c, now); err != nil {
			return err
		}
	}
	if err := s.qps.refuse(now); err != nil {
		return err
	}
	if !s.inFlight.Acquire() {
		return s.overloaded()
	}
	if err := exchange.ReserveForRequest(s.buffered, nil, r.Held, "the request"); err != nil {
		s.inFlight.Release()
		return err
	}
	return nil
}

func (s *SSP) overloaded() *exchange.Error {
	limit := s.inFlight.Limit()
	return s.overloads.err(limit, func() *exchange.Error {
		return exchange.Errorf(exchange.Overloaded, exchange.NotSent, "%d of %d requests to it are in flight; see ssps[].max_in_flight", limit, limit)
	})
}

// send makes attempts until one gets a response, or until a retry is not allowed.
func (s *SSP) send(r *Request, ex *exchange.Exchange, c *call) *exchange.Error {
	var failed *exchange.Error // the error that is being retried
	why := firstAttempt
	for {
		err := s.attemptOrHedge(r, ex, c, why)
		if err == nil {
			return nil
		}
		e := exchange.AsError(err)
		if failed != nil && preventedRetry(failed, e) {
			return failed
		}
		again, ok := s.retry(r, ex, e, c)
		if !ok {
			return c.retries.lastError(e, c.sent)
		}
		why, failed = again, e
		if e.Progress != exchange.NotSent || e.Isolate != exchange.IsolateNext { // else its endpoint is as good as the others
			ex.Avoid = cmp.Or(ex.Endpoint, ex.Avoid) // an attempt without a place has no endpoint
		}
		ex.ReleaseBody()
		ex.Response.Reset()
		ex.Times = exchange.Times{} // the pool sets Queued to the begin of the attempt
	}
}

// attemptOrHedge makes an attempt, and a hedge beside it if the attempt may be hedged and is late.
func (s *SSP) attemptOrHedge(r *Request, ex *exchange.Exchange, c *call, why retryKind) error {
	if s.opts.Hedge.Enabled && !c.hedged && r.Method.Idempotent() {
		if after := s.lateAfter.get(); after > 0 {
			return s.hedged(r, ex, c, why, after)
		}
	}
	return s.attempt(r, ex, c, why, nil)
}

// attempt makes one attempt, and records its end if the call is traced.
func (s *SSP) attempt(r *Request, ex *exchange.Exchange, c *call, why retryKind, h *hedge) error {
	if c.trace == nil {
		return s.acquireAndSend(r, ex, c, why, h)
	}
	c.attempt = c.trace.Attempt(why.String())
	before := c.sent
	err := s.acquireAndSend(r, ex, c, why, h)
	if sent := c.sent > before; err != nil {
		e := exchange.AsError(err)
		c.attempt.Ended(ex, sent, e.Outcome, e)
	} else {
		c.attempt.Ended(ex, sent, c.outcome, nil)
	}
	return err
}

// acquireAndSend acquires a place, builds the call's header, and runs the exchange. If h is not nil,
// it arms h when the exchange begins.
func (s *SSP) acquireAndSend(r *Request, ex *exchange.Exchange, c *call, why retryKind, h *hedge) error {
	// pipeline_methods: a request with side effects waits for no other response, and no other
	// request waits for its response.
	ex.Alone = !s.opts.PipelineAll && !r.Method.Idempotent()
	ex.Resent, ex.Refused, ex.Redials = c.retries.resent, c.retries.refused && why != retryHedge, s.opts.RetryMax-c.retries.limited
	ex.OverHTTP1, ex.Isolated, ex.Client, ex.Keyer = c.retries.overHTTP1, c.retries.isolated, c.client, r.keyer()
	place, err := s.lender.Acquire(ex)
	c.retries.limited += ex.Redialed
	switch {
	case err != nil:
		return err
	case c.retries.overHTTP1 && place.Protocol() == exchange.HTTP2:
		place.Release(ex)
		return exchange.ErrOnlyHTTP2
	}
	if err := s.prepare(r, ex, c, why); err != nil {
		place.Release(ex)
		return err
	}
	s.write(r, ex, c, place)
	c.sent++
	s.stats.sent.Add(1)
	if why != firstAttempt {
		s.stats.retries[why].Add(1)
	}
	if ex.Redialed > 0 {
		s.stats.retries[retryNotSent].Add(uint64(ex.Redialed))
	}
	if h != nil {
		h.arm()
	}
	err = place.Do(ex)
	s.attempted(r, ex, c, place, err)
	if c.scored && why == firstAttempt && err == nil {
		s.shape.learn(c, ex.Times.Done)
	}
	if s.opts.Hedge.Enabled && why != retryHedge {
		s.observeForHedge(ex, c.client, err)
	}
	return err
}

func (s *SSP) attempted(r *Request, ex *exchange.Exchange, c *call, pl place, err error) {
	t := &ex.Times
	if t.Done.IsZero() {
		t.Done = time.Now()
	}
	var failed *exchange.Error
	if err != nil {
		failed = exchange.AsError(err)
		c.outcome, c.paused = failed.Outcome, false
	} else {
		c.outcome = s.classify(r, &ex.Response)
		if c.body.coding != "" {
			s.codings[c.body.coding].observe(ex.Response.Status)
		}
		c.paused = s.backoff.observe(&ex.Response, c.client, t.Done, s.since(t.Done))
	}
	c.excluded = pl.Ended(c.outcome, s.resultOf(ex, c, c.outcome, failed), c.client, t)
}

var errDisabled = exchange.Errorf(exchange.SSPDisabled, exchange.NotSent,
	"an operator has drained or disabled it, or all its endpoints; see adbuffer ssp list")

// prepare does what must wait until the attempt has a place: it checks that the client is still
// connected if the request has waited, makes the body, and takes a token of the SSP's qps limit.
func (s *SSP) prepare(r *Request, ex *exchange.Exchange, c *call, why retryKind) *exchange.Error {
	if r.Gone != nil && why != retryHedge && ex.Times.Acquired.Sub(c.start) > goneAfter && r.Gone() {
		return exchange.ErrClientGone
	}
	if err := s.makeBody(r, ex, &c.body); err != nil {
		return err
	}
	return s.qps.take(s.since(ex.Times.Acquired))
}

// goneAfter is how long a request must have waited before a system call checks that its client is
// still connected.
const goneAfter = time.Millisecond

// write builds the request in ex.Block, behind the copy of the body: target, authority, then the
// header fields that the SSP gets.
func (s *SSP) write(r *Request, ex *exchange.Exchange, c *call, place place) {
	body := &c.body
	b := append(ex.Block[:body.n], s.opts.Path...)
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
		b = append(b, s.opts.Host...)
	} else {
		b = append(b, place.Host()...)
	}
	authority := len(b)
	policy := s.opts.Policy
	if r.WantsUncoded {
		policy = s.uncoded
	}
	b = policy.AppendRequest(b, r.Fields, r.Identity)
	if body.coding != "" {
		b = append(append(append(b, "Content-Encoding: "...), body.coding...), "\r\n"...)
	}
	if r.Fields.TakesTrailers() && place.Protocol() == exchange.HTTP2 && !policy.Drops("Te") {
		b = append(b, "Te: trailers\r\n"...)
	}
	if _, n := r.Fields.GRPCTimeout(); n > 0 && !policy.Drops("Grpc-Timeout") {
		b = append(b, "Grpc-Timeout: "...)
		b = append(strconv.AppendInt(b, remaining(ex, 0), 10), "m\r\n"...)
	}
	if c.attempt != nil {
		b = appendTrace(b, authority, c.attempt, policy)
	}
	ex.Block = b
	ex.Request = exchange.Request{
		Method: r.Method, Scheme: s.opts.Scheme, Target: b[body.n:target:target], Authority: b[target:authority:authority],
		Fields: b[authority:], Body: r.Body,
	}
	if body.n > 0 {
		ex.Request.Body = b[:body.n:body.n]
	}
}
