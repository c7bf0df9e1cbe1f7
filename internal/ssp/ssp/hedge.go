package ssp

import (
	"context"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// hedge is a second attempt beside a late first one. Late means slower than most attempts (Dean and
// Barroso, "The Tail at Scale").
//
//	first   ──────────┬──────────────▶ response, or cancelled
//	             late │
//	second            └─────▶ response, or cancelled
//
// The first attempt runs on the caller's goroutine; only if it is late does a timer start the
// second. Each has its own exchange. At the end the response moves to the caller's exchange, since
// a connection may still use the other exchange.
//
// The caller waits for both attempts, so that no goroutine reads the request after Do. A cancelled
// attempt ends at once. A hedge never makes a response worse: its response counts only if the first attempt gets none,
// and a response with a status of 400 or more does not cancel the first attempt.
type hedge struct {
	ssp     *SSP
	request *Request
	caller  *exchange.Exchange
	after   time.Duration

	first, second             *exchange.Exchange // second: nil until it starts
	cancelFirst, cancelSecond context.CancelFunc
	secondCtx                 context.Context
	timer                     *time.Timer // nil until armed, and once started has stopped it

	// Written, like second, by the goroutine of the second attempt before it closes done. Only hedged sets call.client and
	// call.trace, before it arms the timer.
	done     chan struct{}
	call     call
	err      error
	panicked any
}

// hedged makes an attempt, and a hedge if the attempt has no response within after from when it was sent.
func (s *SSP) hedged(r *Request, ex *exchange.Exchange, c *call, why retryKind, after time.Duration) error {
	h := &hedge{ssp: s, request: r, caller: ex, after: after, done: make(chan struct{})}
	defer h.stop()
	parent := parentOf(ex)
	var firstCtx context.Context
	firstCtx, h.cancelFirst = context.WithCancel(parent)
	h.secondCtx, h.cancelSecond = context.WithCancel(parent)
	h.first = h.exchange(firstCtx)
	h.first.Times.Queued = ex.Times.Queued
	h.call.client, h.call.trace = c.client, c.trace
	// The copy of the body is in a different exchange before and after.
	c.body.made = false
	err := s.attempt(r, h.first, c, why, h)
	c.body.made = false

	c.hedged = h.started()
	if c.hedged {
		if err == nil {
			h.cancelSecond()
		}
		<-h.done
		c.sent += h.call.sent
		if h.panicked != nil {
			panic(h.panicked) // here, where Do's caller can recover it
		}
	}
	switch {
	case err == nil:
		ex.TakeResponse(h.first)
	case c.hedged && h.err == nil:
		ex.TakeResponse(h.second)
		c.outcome, c.paused = h.call.outcome, h.call.paused
		err = nil
	default:
		ex.TakeTimes(h.first)
		ex.FairKey, ex.LostAfter = h.first.FairKey, h.first.LostAfter
	}
	h.first.Release()
	if h.second != nil {
		h.second.Release()
	}
	h.first, h.second = nil, nil
	return err
}

// started reports whether run has started. If it has not, started stops the timer, so that it never will.
func (h *hedge) started() bool {
	if h.timer == nil || h.timer.Stop() {
		h.timer = nil
		return false
	}
	return true
}

// stop ends the contexts of both attempts. If hedged panics, stop also waits for the second attempt, and releases the
// bytes of both responses.
func (h *hedge) stop() {
	h.cancelFirst()
	h.cancelSecond()
	if h.started() {
		<-h.done
	}
	for _, ex := range [...]*exchange.Exchange{h.first, h.second} {
		if ex != nil {
			ex.ReleaseBytes()
		}
	}
}

// exchange returns a new exchange that wants what the caller's exchange wants, and ends with ctx.
func (h *hedge) exchange(ctx context.Context) *exchange.Exchange {
	ex := exchange.AcquireExchange()
	ex.Wanted, ex.FairKey, ex.LostAfter = h.caller.Wanted, h.caller.FairKey, h.caller.LostAfter
	ex.Context = ctx
	return ex
}

// arm is called just before the first attempt is sent.
func (h *hedge) arm() {
	if h.after < time.Until(h.caller.Deadline) {
		h.timer = time.AfterFunc(h.after, h.run)
	}
}

// run is the goroutine of the second attempt.
func (h *hedge) run() {
	defer close(h.done)
	defer func() { h.panicked = recover() }()
	h.err = errNotHedged
	s := h.ssp
	if !s.inFlight.Acquire() {
		return
	}
	defer s.inFlight.Release()
	if !s.pay(h.call.client, retryHedge) {
		return
	}
	h.call.start = time.Now()
	h.call.retries.limited = s.opts.RetryMax // a hedge is not retried
	h.second = h.exchange(h.secondCtx)
	h.second.Avoid, h.second.FairKey = h.first.Endpoint, h.first.FairKey
	defer s.releaseCopyBytes(h.request, &h.call.body)
	h.err = s.attempt(h.request, h.second, &h.call, retryHedge, nil)
	if h.call.sent == 0 {
		s.budget.refund(h.call.client)
	}
	if h.err == nil && h.second.Response.Status < 400 {
		h.cancelFirst()
	}
}

// errNotHedged says that there was no second attempt. No caller gets this error.
var errNotHedged = &exchange.Error{Outcome: exchange.Overloaded, Progress: exchange.NotSent}

// observeForHedge records the latency of an attempt that is no hedge, for a client of this group, for the hedge delay. The latency of a cancelled
// attempt is a lower bound; it counts only if the attempt was already late. So it does not count
// while the hedge delay is unknown.
func (s *SSP) observeForHedge(ex *exchange.Exchange, client rates.Group, err error) {
	took := ex.Times.Done.Sub(ex.Times.Acquired)
	if err != nil {
		switch exchange.AsError(err).Outcome {
		case exchange.Cancelled, exchange.Deadline:
		default:
			return
		}
		if late := s.lateAfter.get(); late == 0 || took < late {
			return
		}
	}
	s.lateAfter.observe(s.since(ex.Times.Done), client, took)
}
