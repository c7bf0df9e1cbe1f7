package ssp

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// learnt returns a client of an SSP that responds within 10 ms. Enough requests have passed to know
// its latency. The test's steps begin after these requests.
func learnt(t *testing.T, p *fakePool, with func(o *Options)) *client {
	t.Helper()
	steps := p.steps
	p.steps = []step{after(10*msec, fill())}
	c := newClient(t, p, func(o *Options) {
		o.Hedge.Enabled = true
		if with != nil {
			with(o)
		}
	})
	for range 250 {
		c.get().want(upstream.Fill)
	}
	late := c.ssp.lateAfter.get()
	if late < 10*msec || late > 11*msec {
		t.Fatalf("an attempt is late after %v, want 10ms and a little more", late)
	}
	p.steps, p.acquired, p.sent = steps, 0, nil
	c.ssp.stats.sent.Store(0)
	c.ssp.budget.init()
	return c
}

func TestLateRequestIsHedgedAndTheFirstResponseWins(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{never(), after(5*msec, response(200, "hedge responds", "X-Second: 1"))}}
		c := learnt(t, p, nil)
		late := c.ssp.lateAfter.get()
		ex := upstream.AcquireExchange()
		res := c.doOn(ex, c.request(upstream.GET), 0).want(upstream.Fill)
		if res.body != "hedge responds" || string(ex.Response.Fields) != "X-Second: 1\r\n" || res.took != late+5*msec {
			t.Errorf("%q with fields %q after %v", res.body, ex.Response.Fields, res.took)
		}
		if got := ex.Times.FirstByte.Sub(ex.Times.Queued); got != res.took {
			t.Errorf("the first byte is recorded after %v", got)
		}
		if ex.Attempts != 2 {
			t.Errorf("%d attempts are recorded, want 2", ex.Attempts)
		}
		if c.budget.Used() != int64(len(res.body)) {
			t.Errorf("%d bytes of the budget are held", c.budget.Used())
		}
		ex.Release()
		c.wantSent(p, 2)
		c.wantRetries(map[retryKind]uint64{retryHedge: 1})
		if won := c.ssp.stats.hedgesWon.Load(); won != 1 {
			t.Errorf("%d hedges are counted as won, want 1", won)
		}
		c.wantIdle()
		sent := p.requests()
		if sent[0].target != sent[1].target || sent[0].head != sent[1].head {
			t.Errorf("%+v was sent as %+v too", sent[0], sent[1])
		}
		if n := p.busy.Load(); n != 0 {
			t.Errorf("%d exchanges are still under way: the first was not cancelled", n)
		}
	})
}

func TestFirstAttemptWinsIfItIsFaster(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(20*msec, response(200, "first attempt responds")), never()}}
		c := learnt(t, p, nil)
		if res := c.get().want(upstream.Fill); res.body != "first attempt responds" || res.took != 20*msec {
			t.Errorf("%q after %v", res.body, res.took)
		}
		c.wantSent(p, 2)
		c.wantRetries(map[retryKind]uint64{retryHedge: 1})
		if n := p.busy.Load(); n != 0 {
			t.Errorf("%d exchanges are still under way: the second was not cancelled", n)
		}
		c.wantIdle()
	})
}

func TestRequestInTimeIsNotHedged(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(10*msec, fill())}}
		c := learnt(t, p, nil)
		for range 50 {
			c.get().want(upstream.Fill)
		}
		c.wantSent(p, 50)
		c.wantRetries(nil)
	})
}

func TestAtMostOneHedge(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{never()}}
		c := learnt(t, p, nil)
		res := c.get().want(upstream.Deadline)
		if res.took != 295*msec {
			t.Errorf("took %v, want 295ms", res.took)
		}
		c.wantSent(p, 2)
		c.wantRetries(map[retryKind]uint64{retryHedge: 1})
		c.wantIdle()
	})
}

func TestRequestsThatAreNeverHedged(t *testing.T) {
	for _, c := range []struct {
		name    string
		method  upstream.Method
		with    func(o *Options)
		prepare func(c *client)
	}{
		{"POST", upstream.POST, nil, nil},
		{"hedging is off", upstream.GET, nil, func(c *client) { c.ssp.opts.Hedge.Enabled = false }},
		{"no budget", upstream.GET, nil, func(c *client) {
			for c.ssp.budget.spend() {
			}
		}},
		{"over max_in_flight", upstream.GET, func(o *Options) { o.MaxInFlight = 1 }, nil},
		{"too few observations", upstream.GET, nil, func(c *client) { c.ssp.lateAfter.value.Store(0) }},
		{"late only after the deadline", upstream.GET, nil, func(c *client) { c.ssp.lateAfter.value.Store(int64(295 * msec)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				p := &fakePool{steps: []step{after(100*msec, fill())}}
				cl := learnt(t, p, c.with)
				if c.prepare != nil {
					c.prepare(cl)
				}
				cl.do(cl.request(c.method)).want(upstream.Fill)
				cl.wantSent(p, 1)
				cl.wantRetries(nil)
				if got, want := cl.ssp.stats.overBudget[retryHedge].Load(), c.name == "no budget"; (got == 1) != want || got > 1 {
					t.Errorf("%d hedges are counted as refused by the budget", got)
				}
				cl.wantIdle()
			})
		})
	}
}

// A hedge takes a token of the limit on queries. If it is not sent, it returns the token.
func TestHedgeWithoutAPlaceOrATokenIsNotSent(t *testing.T) {
	for name, kept := range map[string]func(p *fakePool, c *client){
		"place": func(p *fakePool, c *client) {
			p.acquire = func(n int, _ *upstream.Exchange) error {
				if n == 1 {
					return &upstream.Error{Outcome: upstream.PendingFull}
				}
				return nil
			}
		},
		"token": func(p *fakePool, c *client) { c.ssp.qps.init(QPSOptions{Limit: 0.001, Burst: 1}, time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				p := &fakePool{steps: []step{after(100*msec, fill())}}
				c := learnt(t, p, nil)
				kept(p, c)
				c.get().want(upstream.Fill)
				c.wantSent(p, 1)
				c.wantRetries(nil)
				if got := c.ssp.budget.fifths.Load(); got != maxFifths {
					t.Errorf("the budget is %d fifths, want it full", got)
				}
				if overBudget := c.ssp.stats.overBudget[retryHedge].Load(); overBudget != 0 {
					t.Errorf("%d hedges are counted as refused by the budget", overBudget)
				}
				if limited := c.ssp.qps.limited.Load(); (limited == 1) != (name == "token") {
					t.Errorf("%d were counted as over the limit", limited)
				}
				c.wantIdle()
			})
		})
	}
}

// A failed hedge must not replace the first attempt's response.
func TestErrorResponseToTheHedgeDoesNotWin(t *testing.T) {
	for _, status := range []int{400, 429, 503} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{after(50*msec, response(200, "first attempt responds")), response(status, "hedge responds")}}
			c := learnt(t, p, nil)
			if res := c.get().want(upstream.Fill); res.body != "first attempt responds" {
				t.Errorf("got %q", res.body)
			}
			if won := c.ssp.stats.hedgesWon.Load(); won != 0 {
				t.Errorf("%d hedges are counted as won", won)
			}
			c.wantIdle()
		})
	}
}

func TestHedgeWinsIfTheFirstAttemptFails(t *testing.T) {
	for _, status := range []int{200, 404} {
		testsupport.Bubble(t, func(t *testing.T) {
			p := &fakePool{steps: []step{after(20*msec, fail(cutMidResponse)), after(50*msec, response(status, "hedge responds"))}}
			c := learnt(t, p, nil)
			if res := c.get(); res.err != nil || res.status != status || res.body != "hedge responds" {
				t.Errorf("%v %d %q", res.err, res.status, res.body)
			}
			c.wantSent(p, 2)
			c.wantIdle()
		})
	}
}

func TestIfBothFailTheFirstAttemptDecidesOutcomeAndRetry(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(20*msec, fail(cutMidResponse)), fail(notSent)}}
		c := learnt(t, p, nil)
		c.get().want(upstream.ConnLost)
		c.wantSent(p, 2)
		c.wantIdle()

		p.steps, p.acquired, p.sent = []step{after(20*msec, fail(stale)), fail(cutMidResponse), after(100*msec, fill())}, 0, nil
		c.ssp.stats.sent.Store(0)
		c.get().want(upstream.Fill)
		c.wantSent(p, 3) // the retry is late too, and is not hedged again
		c.wantRetries(map[retryKind]uint64{retryHedge: 2, retryStale: 1})
		c.wantIdle()
	})
}

// A failure before the request is late is retried as without hedging. The retry may then be hedged.
func TestRetryMayBeHedged(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{fail(stale), never(), fill()}}
		c := learnt(t, p, nil)
		c.get().want(upstream.Fill)
		c.wantSent(p, 3)
		c.wantRetries(map[retryKind]uint64{retryHedge: 1, retryStale: 1})
		c.wantIdle()
	})
}

// The responses that a stale connection has carried pay for the retry, also if the leg may be
// hedged. Once, the retry of such a leg always used the budget. It failed with conn_lost after a
// restart of an SSP with more connections than the budget has tokens.
func TestStaleConnectionOfALegThatMayBeHedgedPaysForTheRetry(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{func(ex *upstream.Exchange) error {
			ex.Served = fifthsPerToken
			return fail(stale)(ex)
		}, fill()}}
		c := learnt(t, p, nil)
		for c.ssp.budget.spend() {
		}
		c.get().want(upstream.Fill)
		c.wantSent(p, 2)
		c.wantRetries(map[retryKind]uint64{retryStale: 1})
		c.wantIdle()
	})
}

// The latency of a cancelled attempt is unknown. Once, legs that lost in parallel-first were the
// first observations, and adbuffer then hedged every attempt that lasted longer than they had.
func TestCancelledAttemptsDoNotBeginTheHedgeDelay(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{never()}}, func(o *Options) { o.Hedge.Enabled = true })
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(msec, cancel)
			ex := upstream.AcquireExchange()
			ex.Context = ctx
			c.doOn(ex, c.request(upstream.GET), 0).want(upstream.Cancelled)
			ex.Release()
		}
		if late := c.ssp.lateAfter.get(); late != 0 {
			t.Errorf("an attempt is late after %v, but the SSP has never responded", late)
		}
	})
}

func TestCancelledHedgedLegEndsAtOnce(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{never()}}
		c := learnt(t, p, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*msec, cancel)
		ex := upstream.AcquireExchange()
		defer ex.Release()
		ex.Context = ctx
		if res := c.doOn(ex, c.request(upstream.GET), 0).want(upstream.Cancelled); res.took != 30*msec {
			t.Errorf("took %v, want 30ms", res.took)
		}
		c.wantSent(p, 2)
		c.wantIdle()
	})
}

// A panic in the hedge's goroutine must not end the process.
func TestPanicOfTheHedgeReachesTheCaller(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(50*msec, fill()), func(*upstream.Exchange) error { panic("BUG: scripted") }}}
		c := learnt(t, p, nil)
		defer func() {
			if v := recover(); v != "BUG: scripted" {
				t.Errorf("recovered %v", v)
			}
			c.wantIdle()
		}()
		c.get()
	})
}

// No goroutine reads the request once Do has returned, even by a panic.
func TestPanicOfTheFirstAttemptWaitsForTheHedge(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(50*msec, func(*upstream.Exchange) error { panic("BUG: scripted") }), never()}}
		c := learnt(t, p, nil)
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
			if n := p.busy.Load(); n != 0 {
				t.Errorf("%d exchanges are still under way", n)
			}
			c.wantIdle()
		}()
		c.get()
	})
}

// Hedges end slow attempts early. If only complete latencies counted, slow attempts would look
// rare, and adbuffer would hedge requests earlier and earlier.
func TestHedgingDoesNotLowerTheHedgeDelay(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var first atomic.Int64 // duration of the first attempt; the second takes 1 ms
		p := &fakePool{steps: []step{func(ex *upstream.Exchange) error {
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
			c.get().want(upstream.Fill)
		}
		if late := c.ssp.lateAfter.get(); late < 100*msec || late > 107*msec {
			t.Errorf("an attempt is late after %v in the end; without hedging, 9 in 10 latencies are up to 100ms", late)
		}
		if hedges := c.ssp.stats.retries[retryHedge].Load(); hedges < 300 || hedges > 420 {
			t.Errorf("%d hedges for 4000 requests, want a tenth", hedges)
		}
	})
}

// Each attempt has the body in its own exchange.
func TestBodyIsSentCompleteByBothAttempts(t *testing.T) {
	for name, steps := range map[string]func(c *client) []step{
		"resent, then hedged": func(*client) []step {
			return []step{fail(stale), never(), fill()}
		},
		"hedged, then not": func(*client) []step {
			return []step{after(20*msec, fail(stale)), fail(cutMidResponse), fill()}
		},
		"not, then hedged": func(c *client) []step {
			late := c.ssp.lateAfter.value.Swap(0)
			return []step{func(ex *upstream.Exchange) error {
				c.ssp.lateAfter.value.Store(late)
				return fail(stale)(ex)
			}, never(), fill()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				p := &fakePool{}
				c := learnt(t, p, func(o *Options) { o.Gzip = GzipOptions{Enabled: true, MinBytes: 1} })
				p.steps = steps(c)
				r := c.request(upstream.GET)
				r.Body = []byte(strings.Repeat(`{"imp":1}`, 100))
				c.do(r).want(upstream.Fill)
				for i, s := range p.requests() {
					if got := gunzip(t, s.body); got != string(r.Body) {
						t.Errorf("attempt %d sent %q", i, got)
					}
				}
				c.wantSent(p, 3)
				c.wantIdle()
			})
		})
	}
}
