package ssp

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// learnt returns a client of an SSP whose responses have taken 10 ms, often enough that a later attempt
// is hedged.
func learnt(t *testing.T, p *fakePool, with func(o *Options)) *client {
	t.Helper()
	steps := p.steps
	c := newClient(t, p, func(o *Options) {
		o.Hedge.Enabled = true
		if with != nil {
			with(o)
		}
	})
	for range 250 {
		time.Sleep(10 * msec)
		c.ssp.lateAfter.observe(c.ssp.since(time.Now()), c.id.Group(), 10*msec)
	}
	late := c.ssp.lateAfter.get()
	testsupport.MustTrue(t, late >= 10*msec && late <= 11*msec, "an attempt is late after %v, want 10ms and a little more", late)
	p.steps = steps // without the fill of newClient, if the test adds its steps later
	return c
}

func TestLateRequestIsHedgedAndTheFirstResponseWins(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{never(), after(5*msec, response(200, "hedge responds", "X-Second: 1"))}}
		c := learnt(t, p, nil)
		late := c.ssp.lateAfter.get()
		ex := exchange.AcquireExchange()
		res := c.doOn(ex, c.request(exchange.GET), 0).want(exchange.Fill)
		if res.body != "hedge responds" || string(ex.Response.Fields) != "X-Second: 1\r\n" || res.took != late+5*msec {
			t.Errorf("%q with fields %q after %v", res.body, ex.Response.Fields, res.took)
		}
		testsupport.Equal(t, ex.Times.FirstByte.Sub(ex.Times.Queued), res.took, "the first byte is recorded after %v")
		testsupport.Equal(t, ex.Attempts, 2, "%d attempts are recorded")
		testsupport.Equal(t, c.budget.Used(), int64(len(res.body)), "%d bytes of the budget are held")
		ex.Release()
		c.wantSent(p, 2)
		c.wantRetries(map[retryKind]uint64{retryHedge: 1})
		c.wantIdle()
		sent := p.requests()
		testsupport.True(t, sent[0].target == sent[1].target && sent[0].head == sent[1].head, "%+v was sent as %+v too", sent[0], sent[1])
		testsupport.Equal(t, p.busy.Load(), 0, "%d exchanges are still under way: the first was not cancelled")
	})
}

// A key may cost a scan of the body, so the pool determines it once for all attempts of a call. The idle time
// of a connection that closed first is learned when a later attempt succeeds.
func TestAttemptsOfAHedgedCallShareItsFairKeyAndLostConnection(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		type known struct {
			key  uint64
			lost time.Duration
		}
		var got []known
		p := &fakePool{steps: []step{
			after(20*msec, func(ex *exchange.Exchange) error { ex.LostAfter = 5 * time.Second; return fail(stale)(ex) }),
			fail(notSent), fill(),
		}}
		c := learnt(t, p, nil)
		p.acquire = func(_ int, ex *exchange.Exchange) error {
			got = append(got, known{ex.FairKey, ex.LostAfter})
			ex.FairKey = 7
			return nil
		}
		c.get().want(exchange.Fill)
		want := []known{{0, 0}, {7, 0}, {7, 5 * time.Second}}
		testsupport.True(t, slices.Equal(got, want), "the first attempt, its hedge and the retry know %v, want %v", got, want)
	})
}

func TestResultOfTwoAttempts(t *testing.T) {
	first := response(200, "of the first")
	hedge := func(status int) step { return response(status, "of the hedge") }
	served := func(ex *exchange.Exchange) error {
		ex.Served = fifthsPerToken
		return fail(stale)(ex)
	}
	one := map[retryKind]uint64{retryHedge: 1}
	for _, tt := range []struct {
		name     string
		steps    []step
		noBudget bool          // no token is left
		cancel   time.Duration // the call is cancelled; 0 = never
		want     exchange.Outcome
		body     string
		took     time.Duration
		late     bool // took is after the attempt became late
		sent     int
		retries  map[retryKind]uint64
	}{
		{name: "in time", steps: []step{after(10*msec, first)}, want: exchange.Fill, body: "of the first", took: 10 * msec, sent: 1},
		{name: "the first is faster", steps: []step{after(20*msec, first), never()}, want: exchange.Fill, body: "of the first", took: 20 * msec, sent: 2, retries: one},
		{name: "at most one hedge", steps: []step{never()}, want: exchange.Deadline, took: 295 * msec, sent: 2, retries: one},
		{name: "cancelled", steps: []step{never()}, cancel: 30 * msec, want: exchange.Cancelled, took: 30 * msec, sent: 2, retries: one},
		// A failed hedge must not replace the first attempt's response.
		{name: "the hedge gets 400", steps: []step{after(50*msec, first), hedge(400)}, want: exchange.Fill, body: "of the first", took: 50 * msec, sent: 2, retries: one},
		{name: "the hedge gets 429", steps: []step{after(50*msec, first), hedge(429)}, want: exchange.Fill, body: "of the first", took: 50 * msec, sent: 2, retries: one},
		{name: "the hedge gets 503", steps: []step{after(50*msec, first), hedge(503)}, want: exchange.Fill, body: "of the first", took: 50 * msec, sent: 2, retries: one},
		{
			name: "the first fails, the hedge fills", steps: []step{after(20*msec, fail(cutMidResponse)), after(50*msec, hedge(200))},
			want: exchange.Fill, body: "of the hedge", took: 50 * msec, late: true, sent: 2, retries: one,
		},
		{
			name: "the first fails, the hedge gets 404", steps: []step{after(20*msec, fail(cutMidResponse)), after(50*msec, hedge(404))},
			want: exchange.ClientError, body: "of the hedge", took: 50 * msec, late: true, sent: 2, retries: one,
		},
		// If both fail, the first attempt decides outcome and retry. A late retry is not hedged again.
		{name: "both fail", steps: []step{after(20*msec, fail(cutMidResponse)), fail(notSent)}, want: exchange.ConnLost, took: 20 * msec, sent: 2, retries: one},
		// The log and the histograms get the time until the last attempt failed.
		{
			name: "both fail, the hedge last", steps: []step{after(20*msec, fail(cutMidResponse)), after(50*msec, fail(cutMidResponse))},
			want: exchange.ConnLost, took: 50 * msec, late: true, sent: 2, retries: one,
		},
		{
			name: "both fail, and the first may be sent again", steps: []step{after(20*msec, fail(stale)), fail(cutMidResponse), after(100*msec, first)},
			want: exchange.Fill, body: "of the first", took: 120 * msec, sent: 3, retries: map[retryKind]uint64{retryHedge: 1, retryStale: 1},
		},
		// A failure before the request is late is retried as without hedging. The retry may be hedged.
		{
			name: "the retry is hedged", steps: []step{fail(stale), never(), hedge(200)},
			want: exchange.Fill, body: "of the hedge", late: true, sent: 3, retries: map[retryKind]uint64{retryHedge: 1, retryStale: 1},
		},
		// The responses that a stale connection has carried pay for the retry, also if the request may be
		// hedged: after a restart of an SSP, more connections may be stale than the budget has tokens.
		{
			name: "the connection pays for the retry", steps: []step{served, first}, noBudget: true,
			want: exchange.Fill, body: "of the first", sent: 2, retries: map[retryKind]uint64{retryStale: 1},
		},
	} {
		testsupport.RunBubble(t, tt.name, func(t *testing.T) {
			p := &fakePool{steps: tt.steps}
			c := learnt(t, p, nil)
			if tt.late {
				tt.took += c.ssp.lateAfter.get()
			}
			for tt.noBudget && c.ssp.budget.spend(c.id.Group()) {
			}
			ex := exchange.AcquireExchange()
			if tt.cancel > 0 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(tt.cancel, cancel)
				ex.Context = ctx
			}
			res := c.doOn(ex, c.request(exchange.GET), 0).want(tt.want)
			testsupport.True(t, res.body == tt.body && res.took == tt.took, "%q after %v, want %q after %v", res.body, res.took, tt.body, tt.took)
			testsupport.Equal(t, ex.Times.Done.Sub(ex.Times.Queued), res.took, "its end is recorded after %v")
			ex.Release()
			c.wantSent(p, tt.sent)
			c.wantRetries(tt.retries)
			testsupport.Equal(t, p.busy.Load(), 0, "%d exchanges are still under way")
			c.wantIdle()
		})
	}
}

func TestRequestsThatAreNeverHedged(t *testing.T) {
	for _, c := range []struct {
		name    string
		method  exchange.Method
		with    func(o *Options)
		prepare func(c *client)
	}{
		{"POST", exchange.POST, nil, nil},
		{"hedging is off", exchange.GET, nil, func(c *client) { c.ssp.opts.Hedge.Enabled = false }},
		{"no budget", exchange.GET, nil, func(c *client) {
			c.spendBudget()
		}},
		{"over max_in_flight", exchange.GET, func(o *Options) { o.MaxInFlight = 1 }, nil},
		{"too few observations", exchange.GET, nil, func(c *client) { c.ssp.lateAfter.value.Store(0) }},
		{"late only after the deadline", exchange.GET, nil, func(c *client) { c.ssp.lateAfter.value.Store(int64(295 * msec)) }},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			p := &fakePool{steps: []step{after(100*msec, fill())}}
			cl := learnt(t, p, c.with)
			if c.prepare != nil {
				c.prepare(cl)
			}
			cl.do(cl.request(c.method)).want(exchange.Fill)
			cl.wantSent(p, 1)
			cl.wantRetries(nil)
			got, want := cl.ssp.stats.overBudget[retryHedge].Load(), c.name == "no budget"
			testsupport.True(t, (got == 1) == want && got <= 1, "%d hedges are counted as refused by the budget", got)
			cl.wantIdle()
		})
	}
}

// A hedge takes a token of the limit on queries. If it is not sent, it returns the token.
func TestHedgeWithoutAPlaceOrATokenIsNotSent(t *testing.T) {
	for name, kept := range map[string]func(p *fakePool, c *client){
		"place": func(p *fakePool, c *client) {
			p.acquire = func(n int, _ *exchange.Exchange) error {
				if n == 1 {
					return &exchange.Error{Outcome: exchange.PendingFull}
				}
				return nil
			}
		},
		"token": func(p *fakePool, c *client) { c.ssp.qps.init(QPSOptions{Limit: 0.001, Burst: 1}, time.Now()) },
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			p := &fakePool{steps: []step{after(100*msec, fill())}}
			c := learnt(t, p, nil)
			kept(p, c)
			c.get().want(exchange.Fill)
			c.wantSent(p, 1)
			c.wantRetries(nil)
			testsupport.Equal(t, c.ssp.budget.groups[c.id.Group()].fifths.Load(), 50, "the budget is %d fifths, want it full")
			testsupport.Equal(t, c.ssp.stats.overBudget[retryHedge].Load(), 0, "%d hedges are counted as refused by the budget")
			limited := c.ssp.qps.limited.Load()
			testsupport.True(t, (limited == 1) == (name == "token"), "%d were counted as over the limit", limited)
			c.wantIdle()
		})
	}
}

// The latency of a cancelled attempt is unknown. If legs that lost in parallel-first counted as the first
// observations, adbuffer would hedge every attempt that lasts longer than these legs did.
func TestCancelledAttemptsDoNotBeginTheHedgeDelay(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{never()}}, func(o *Options) { o.Hedge.Enabled = true })
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(msec, cancel)
			c.getIn(ctx, 0).want(exchange.Cancelled)
		}
		testsupport.Equal(t, c.ssp.lateAfter.get(), 0, "an attempt is late after %v, but the SSP has never responded")
	})
}

// panicWithBytes panics when a part of the response has arrived.
func panicWithBytes(ex *exchange.Exchange) error {
	if err := ex.AppendBody([]byte("a part")); err != nil {
		return err
	}
	panic("BUG: scripted")
}

// A panic in the hedge's goroutine must not end the process.
func TestPanicOfTheHedgeReachesTheCaller(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(50*msec, fill()), panicWithBytes}}
		c := learnt(t, p, nil)
		defer func() {
			testsupport.Equal(t, recover(), "BUG: scripted", "recovered %v")
			c.wantIdle()
		}()
		c.get()
	})
}

// No goroutine reads the request once Do has returned, even by a panic.
func TestPanicOfTheFirstAttemptWaitsForTheHedge(t *testing.T) {
	for _, hedge := range []step{never(), after(5*msec, response(404, "a response that does not end the first attempt"))} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{after(50*msec, panicWithBytes), hedge}}
			c := learnt(t, p, nil)
			defer func() {
				testsupport.True(t, recover() != nil, "no panic")
				testsupport.Equal(t, p.busy.Load(), 0, "%d exchanges are still under way")
				c.wantIdle()
			}()
			c.get()
		})
	}
}

// Hedges end slow attempts early. If only complete latencies counted, slow attempts would look
// rare, and adbuffer would hedge requests earlier and earlier.
func TestHedgingDoesNotLowerTheHedgeDelay(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var first atomic.Int64 // duration of the first attempt; the second takes 1 ms
		p := &fakePool{steps: []step{func(ex *exchange.Exchange) error {
			d := time.Duration(first.Swap(int64(msec)))
			return after(d, fill())(ex)
		}}}
		c := newClient(t, p, func(o *Options) { o.Hedge = HedgeOptions{Enabled: true, Quantile: 0.9} })
		for i := range 4000 {
			d := 10 * msec
			if slow := i%20 - 15; slow > 0 {
				d = time.Duration(slow) * 50 * msec // 50, 100, 150, 200
			}
			first.Store(int64(d))
			c.get().want(exchange.Fill)
		}
		testsupport.Between(t, c.ssp.lateAfter.get(), 100*msec, 107*msec, "an attempt is late after %v in the end; without hedging, 9 in 10 latencies are up to 100ms")
		testsupport.Between(t, c.ssp.stats.retries[retryHedge].Load(), 300, 420, "%d hedges for 4000 requests, want a tenth")
	})
}
