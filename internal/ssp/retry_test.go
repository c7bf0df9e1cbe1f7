package ssp

import (
	"context"
	"testing"
	"time"

	"adbuffer/internal/upstream"
)

func TestWhatIsSentAgainAndWhatIsNot(t *testing.T) {
	get, post := upstream.GET, upstream.POST
	timeout := *upstream.ErrDeadline
	notSentTimeout := *upstream.ErrDeadlineNotSent
	tls := upstream.Error{Outcome: upstream.TLSFailed, Progress: upstream.NotSent}
	misdirected := upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.NotProcessed}
	malformed := upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.MaybeProcessed}
	tooLarge := upstream.Error{Outcome: upstream.ResponseTooLarge, Progress: upstream.MaybeProcessed}
	headTooLarge := upstream.Error{Outcome: upstream.TooLarge, Progress: upstream.NotSent}
	overloaded := upstream.Error{Outcome: upstream.Overloaded, Progress: upstream.NotSent}
	const no again = firstTime
	for _, c := range []struct {
		name   string
		err    upstream.Error
		method upstream.Method
		stale  RetryStale
		why    again // no: not sent again
	}{
		{"GET, not sent", notSent, get, StaleNever, againNotSent},
		{"POST, not sent", notSent, post, StaleNever, againNotSent},
		{"POST, TLS failed", tls, post, StaleNever, againNotSent},
		{"POST, not processed", notProcessed, post, StaleNever, againNotProcessed},
		{"POST, misdirected", misdirected, post, StaleNever, againNotProcessed},
		{"GET, stale", stale, get, StaleIdempotent, againStale},
		{"HEAD, stale", stale, upstream.HEAD, StaleIdempotent, againStale},
		{"POST, stale", stale, post, StaleIdempotent, no},
		{"POST, stale, all", stale, post, StaleAll, againStale},
		{"GET, stale, never", stale, get, StaleNever, no},
		{"GET, after a byte of the answer", cutMidAnswer, get, StaleAll, no},
		{"GET, response timeout", timeout, get, StaleAll, no},
		{"GET, no time to send it", notSentTimeout, get, StaleAll, no},
		{"GET, malformed answer", malformed, get, StaleAll, no},
		{"GET, answer too large", tooLarge, get, StaleAll, no},
		{"GET, too large for the SSP", headTooLarge, get, StaleAll, no},
		{"GET, over a limit of ours", overloaded, get, StaleAll, no},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &fakePool{steps: []step{fail(c.err), fill()}}
			cl := newClient(t, p, func(o *Options) { o.RetryStale = c.stale })
			r := cl.request(c.method)
			r.Body = []byte("body")
			res := cl.do(r)
			if c.why == no {
				res.want(c.err.Outcome)
				cl.wantSent(p, 1)
				cl.wantRetries(nil)
				return
			}
			res.want(upstream.Fill)
			cl.wantSent(p, 2)
			cl.wantRetries(map[again]uint64{c.why: 1})
			first, second := p.requests()[0], p.requests()[1]
			if first.target != second.target || first.head != second.head || second.body != "body" {
				t.Errorf("%+v was sent again as %+v", first, second)
			}
			cl.wantIdle()
		})
	}
}

func TestARetryAfterPartOfAnAnswerStartsAnew(t *testing.T) {
	p := &fakePool{steps: []step{
		func(ex *upstream.Exchange) error {
			_ = answer(200, "half of", "X-Old: 1")(ex)
			e := stale
			return &e
		}, fill()}}
	c := newClient(t, p, nil)
	ex := upstream.AcquireExchange()
	res := c.doOn(ex, c.request(upstream.GET), 0).want(upstream.Fill)
	if res.body != "an ad" || len(ex.Answer.Fields) > 0 || c.budget.Used() != int64(len("an ad")) {
		t.Errorf("the answer is %q with fields %q, and holds %d bytes", res.body, ex.Answer.Fields, c.budget.Used())
	}
	ex.Release()
	c.wantIdle()
}

func TestRetriesEndAtMax(t *testing.T) {
	for _, max := range []int{0, 1, 3} {
		p := &fakePool{steps: []step{fail(notSent)}}
		c := newClient(t, p, func(o *Options) { o.RetryMax = max })
		c.get().want(upstream.ConnLost)
		c.wantSent(p, 1+max)
		c.wantRetries(map[again]uint64{againNotSent: uint64(max)})
	}
}

// An SSP that closes what is idle makes several connections stale at once.
func TestStaleConnectionsUseUpTheBudgetAndNotMax(t *testing.T) {
	p := &fakePool{steps: []step{fail(stale), fail(notSent), fail(stale), fail(stale), fill()}}
	c := newClient(t, p, func(o *Options) { o.RetryMax = 1 })
	c.get().want(upstream.Fill)
	c.wantRetries(map[again]uint64{againStale: 3, againNotSent: 1})

	p = &fakePool{steps: []step{fail(stale)}}
	c = newClient(t, p, nil)
	c.get().want(upstream.ConnLost)
	c.wantSent(p, 1+maxNotProcessed)

	p = &fakePool{steps: []step{fail(stale), fill()}}
	c = newClient(t, p, nil)
	for c.ssp.budget.spend() {
	}
	c.get().want(upstream.ConnLost)
	c.wantSent(p, 1)
}

func TestWhatWasNotProcessedIsOutsideOfMaxAndBudgetAndBounded(t *testing.T) {
	steps := make([]step, 0, 6)
	for range 5 {
		steps = append(steps, fail(notProcessed))
	}
	p := &fakePool{steps: append(steps, fill())}
	c := newClient(t, p, func(o *Options) { o.RetryMax = 0 })
	for c.ssp.budget.spend() {
	}
	c.get().want(upstream.Fill)
	c.wantRetries(map[again]uint64{againNotProcessed: 5})

	p = &fakePool{steps: []step{fail(notProcessed)}}
	c = newClient(t, p, nil)
	c.get().want(upstream.ConnLost)
	c.wantSent(p, 1+maxNotProcessed)
}

// An SSP that closes what is idle closes many connections at once. A pipelined
// one is found closed only when it was lent.
func TestKeptConnectionsThatAreFoundClosedUseUpNoRetries(t *testing.T) {
	closed := func(ex *upstream.Exchange) error {
		ex.Reused = true
		return &notSent
	}
	fresh := func(step step) step {
		return func(ex *upstream.Exchange) error { ex.Reused = false; return step(ex) }
	}
	p := &fakePool{steps: []step{closed, closed, closed, closed, fresh(fail(notSent)), fresh(fill())}}
	c := newClient(t, p, func(o *Options) { o.RetryMax = 1 })
	c.get().want(upstream.Fill)
	c.wantRetries(map[again]uint64{againNotSent: 5})

	p = &fakePool{steps: []step{closed}}
	c = newClient(t, p, nil)
	c.get().want(upstream.ConnLost)
	c.wantSent(p, 1+maxNotProcessed)
}

func TestRetriesAreAFifthOfTheRequests(t *testing.T) {
	p := &fakePool{steps: []step{fail(notSent)}}
	c := newClient(t, p, func(o *Options) { o.RetryMax = 10; o.Breaker.Enabled = false })
	const requests = 1000
	for range requests {
		c.get().want(upstream.ConnLost)
	}
	if n := c.ssp.stats.retries[againNotSent].Load(); n > requests/5+10 || n < requests/5 {
		t.Errorf("%d retries for %d requests, want a fifth, and ten", n, requests)
	}
}

// However many retries there are, the request ends when it would have, and
// nothing is sent after that.
func TestRetriesNeitherShortenNorExtendTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(40*msec, fail(notProcessed))}}
		c := newClient(t, p, nil)
		res := c.get().want(upstream.Deadline)
		if res.took != 295*msec {
			t.Errorf("took %v, want 295ms", res.took)
		}
		for _, s := range p.requests() {
			if at := s.at.Sub(res.times.Queued); at >= 295*msec {
				t.Errorf("sent again after %v", at)
			}
		}
		c.wantSent(p, 8)
	})
}

func TestNothingIsSentAgainOnceItsTimeIsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{func(ex *upstream.Exchange) error {
			time.Sleep(time.Until(ex.Deadline))
			e := stale
			return &e
		}, fill()}}
		c := newClient(t, p, nil)
		c.get().want(upstream.ConnLost)
		c.wantSent(p, 1)
	})
}

func TestACancelledLegIsNotSentAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &fakePool{steps: []step{func(*upstream.Exchange) error {
		cancel()
		e := notProcessed
		return &e
	}, fill()}}
	c := newClient(t, p, nil)
	ex := upstream.AcquireExchange()
	defer ex.Release()
	ex.Context = ctx
	c.doOn(ex, c.request(upstream.GET), 0).want(upstream.ConnLost)
	c.wantSent(p, 1)
}

func TestWaitingInVainIsNotRepeated(t *testing.T) {
	lastDial := refused
	for _, c := range []struct {
		name  string
		err   upstream.Error
		asked int
	}{
		{"queue full", upstream.Error{Outcome: upstream.PendingFull}, 1},
		{"waited too long", upstream.Error{Outcome: upstream.PendingTimeout}, 1},
		{"deadline", *upstream.ErrDeadlineNotSent, 1},
		{"draining", upstream.Error{Outcome: upstream.Draining}, 1},
		{"its dial failed", lastDial, 2},
		{"every address backs off", upstream.Error{Outcome: upstream.ConnectFailed, Detail: "every address backs off", Err: &lastDial}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &fakePool{acquire: func(int, *upstream.Exchange) error { return &c.err }}
			cl := newClient(t, p, nil)
			cl.get().want(c.err.Outcome)
			if p.lent != c.asked {
				t.Errorf("a place was asked for %d times, want %d", p.lent, c.asked)
			}
			cl.wantRetries(nil) // of those none was sent
			cl.wantIdle()
		})
	}
}

func TestAFailedDialIsRetriedOnAnotherConnection(t *testing.T) {
	p := &fakePool{acquire: func(n int, _ *upstream.Exchange) error {
		if n == 0 {
			return &refused
		}
		return nil
	}}
	c := newClient(t, p, nil)
	c.do(c.request(upstream.POST)).want(upstream.Fill)
	c.wantRetries(map[again]uint64{againNotSent: 1})
}

// Where there is no room for a retry, what it was to mend is how the request
// ended.
func TestARetryThatFindsNoPlaceLeavesTheFirstFailure(t *testing.T) {
	p := &fakePool{steps: []step{fail(stale)}, acquire: func(n int, _ *upstream.Exchange) error {
		if n > 0 {
			return &upstream.Error{Outcome: upstream.PendingFull}
		}
		return nil
	}}
	c := newClient(t, p, nil)
	c.get().want(upstream.ConnLost).wantDetail("scripted")
	c.wantRetries(nil)
}

// The pool takes Queued for the time, so that an attempt must not be lent a
// place in the past.
func TestEachAttemptIsQueuedWhenItBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var queued []time.Time
		p := &fakePool{steps: []step{after(30*msec, fail(stale)), fill()}, acquire: func(_ int, ex *upstream.Exchange) error {
			queued = append(queued, ex.Times.Queued)
			return nil
		}}
		c := newClient(t, p, nil)
		res := c.get().want(upstream.Fill)
		if d := queued[1].Sub(queued[0]); d != 30*msec {
			t.Errorf("the retry was queued %v after the first, want 30ms", d)
		}
		if res.times.Queued != queued[0] {
			t.Error("the leg is not said to have begun when it did")
		}
	})
}
