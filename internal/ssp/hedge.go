package ssp

import (
	"context"
	"time"

	"adbuffer/internal/upstream"
)

// hedge is a request that is sent a second time while the first is out, since
// that is later than most (Dean and Barroso, "The Tail at Scale").
//
//	first   ──────────┬──────────────▶ answer, or cancelled
//	             late │
//	second            └─────▶ answer, or cancelled
//
// The first runs on the caller's goroutine; only where it is late does a timer
// start another. Both have exchanges of their own, and the caller's is given
// the answer at the end: a connection may still hold the loser's.
//
// The caller waits for both, so that nothing reads the request after Do; whoever
// is cancelled ends at once. A hedge never makes an answer worse: one from 400
// on does not end the first, and counts only where the first brings none.
type hedge struct {
	ssp     *SSP
	request *Request
	caller  *upstream.Exchange
	after   time.Duration

	first, second             *upstream.Exchange // second: nil unless started
	cancelFirst, cancelSecond context.CancelFunc
	secondCtx                 context.Context
	timer                     *time.Timer // nil until armed

	// Written by the second's goroutine, before it closes done.
	done     chan struct{}
	leg      leg
	err      error
	panicked any
}

// hedged is attempt with a hedge, should it take longer than after.
func (s *SSP) hedged(r *Request, ex *upstream.Exchange, l *leg, why retryKind, after time.Duration) error {
	h := &hedge{ssp: s, request: r, caller: ex, after: after, done: make(chan struct{})}
	defer h.stop()
	parent := parentOf(ex)
	var firstCtx context.Context
	firstCtx, h.cancelFirst = context.WithCancel(parent)
	h.secondCtx, h.cancelSecond = context.WithCancel(parent)
	h.first = h.exchange(firstCtx)
	h.first.Times.Queued = ex.Times.Queued
	// The copy of the body is in another exchange than before, and after.
	l.body.made = false
	err := s.attempt(r, h.first, l, why, h)
	l.body.made = false

	l.hedged = h.started()
	if l.hedged {
		if err == nil {
			h.cancelSecond()
		}
		<-h.done
		if h.panicked != nil {
			h.first.Release()
			panic(h.panicked) // where our caller can recover it
		}
	}
	switch {
	case err == nil:
		ex.TakeResponse(h.first)
	case l.hedged && h.err == nil:
		ex.TakeResponse(h.second)
		err = nil
	default:
		ex.Times, ex.Reused, ex.Protocol = h.first.Times, h.first.Reused, h.first.Protocol
	}
	h.first.Release()
	if h.second != nil {
		h.second.Release()
	}
	return err
}

// started reports whether the second is under way, or was, and sees to it that
// it is not started any more where it was not.
func (h *hedge) started() bool {
	if h.timer == nil || h.timer.Stop() {
		h.timer = nil
		return false
	}
	return true
}

// end waits for the second, where hedged is left by a panic.
func (h *hedge) stop() {
	h.cancelFirst()
	h.cancelSecond()
	if h.started() {
		<-h.done
	}
}

// exchange returns a new one with the terms of the caller's.
func (h *hedge) exchange(ctx context.Context) *upstream.Exchange {
	ex := upstream.AcquireExchange()
	ex.Deadline, ex.Budget, ex.Share, ex.Context = h.caller.Deadline, h.caller.Budget, h.caller.Share, ctx
	return ex
}

// arm is called when the first is about to be sent.
func (h *hedge) arm() {
	if h.after < time.Until(h.caller.Deadline) {
		h.timer = time.AfterFunc(h.after, h.run)
	}
}

// run is the second's goroutine.
func (h *hedge) run() {
	defer close(h.done)
	defer func() { h.panicked = recover() }()
	h.err = errNotHedged
	s := h.ssp
	if !s.inFlight.Acquire() {
		return
	}
	defer s.inFlight.Release()
	if !s.budget.spend() {
		return
	}
	h.leg.start = time.Now()
	h.leg.retries.limited = s.opts.RetryMax // a hedge is worth no retry
	h.second = h.exchange(h.secondCtx)
	h.err = s.attempt(h.request, h.second, &h.leg, retryHedge, nil)
	h.leg.body.release(h.request.Budget)
	if h.leg.sent == 0 {
		s.budget.refund()
	}
	if h.err == nil && h.second.Response.Status < 400 {
		h.cancelFirst()
	}
}

// errNotHedged: there was no second request. Nobody sees it.
var errNotHedged = &upstream.Error{Outcome: upstream.Overloaded, Progress: upstream.NotSent}

// observeLate takes the latency of an attempt into what is late. Of one that
// was not waited for to its end it is known that it took longer; that tells
// something where it was late already.
func (s *SSP) observeForHedge(ex *upstream.Exchange, err error) {
	took := ex.Times.Done.Sub(ex.Times.Acquired)
	if err != nil {
		switch upstream.AsError(err).Outcome {
		case upstream.Cancelled, upstream.Deadline:
		default:
			return
		}
		if took < s.lateAfter.get() {
			return
		}
	}
	s.lateAfter.observe(s.since(ex.Times.Done), took)
}
