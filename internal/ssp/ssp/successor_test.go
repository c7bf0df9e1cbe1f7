package ssp

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// becomes replaces c's SSP by its successor with other settings, and returns the old one.
func (c *client) becomes(with func(o *Options)) *SSP {
	was := c.ssp
	c.ssp = was.With(options(with))
	return was
}

// on returns c with a different SSP.
func (c *client) on(s *SSP) *client {
	other := *c
	other.ssp = s
	return &other
}

func TestSuccessorKeepsTheCounters(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{fill(), fail(notSent), fill(), response(204, ""), fill()}}
		c := newClient(t, p, nil)
		var seen atomic.Int32
		c.ssp.Observe(func(*SSP, *Request, *exchange.Exchange, exchange.Outcome, *exchange.Error) { seen.Add(1) })
		c.get().want(exchange.Fill)
		c.get().want(exchange.Fill) // retried
		was := c.becomes(func(o *Options) { o.MaxInFlight, o.RetryMax, o.Host = 7, 0, "other.example" })
		c.get().want(exchange.NoBid)
		c.on(was).get().want(exchange.Fill)
		got := c.ssp.Snapshot()
		if got.Sent != 5 || got.Outcomes["fill"] != 3 || got.Outcomes["no_bid"] != 1 || got.Retries["not_sent"] != 1 || got.BreakerRequests != 4 {
			t.Errorf("%+v, want 5 sent, 3 fills, a no-bid, a retry, and 4 in the breaker's window", got)
		}
		testsupport.Equal(t, seen.Load(), 4, "the observer was called for %d requests")
		if c.ssp.MaxInFlight() != 7 || got.ConcurrencyLimit != 7 || was.MaxInFlight() != 0 {
			t.Errorf("max_in_flight is %d, in force is %d; of the previous SSP it is %d", c.ssp.MaxInFlight(), got.ConcurrencyLimit, was.MaxInFlight())
		}
		c.wantIdle()
	})
}

func TestCurrentRequestKeepsItsSettings(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{after(10*msec, fail(notSent)), fill()}}
		c := newClient(t, p, func(o *Options) { o.Host = "old.example" })
		results := c.on(c.ssp).start(1)
		time.Sleep(5 * msec)
		was := c.becomes(func(o *Options) { o.Host, o.RetryMax = "new.example", 0 })
		(<-results).want(exchange.Fill)
		c.get().want(exchange.Fill)
		var hosts []string
		for _, r := range p.requests() {
			hosts = append(hosts, r.authority)
		}
		testsupport.Equal(t, strings.Join(hosts, " "), "old.example old.example new.example", "requests went to %s: the retry belongs to the request that began earlier")
		testsupport.Equal(t, was.Snapshot().Sent, 3, "%d were counted as sent")
		c.wantIdle()
	})
}

func TestRequestsInFlightCountForTheSuccessorsLimit(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for name, next := range map[string]func(c *client, p *fakePool) *SSP{
			"other settings": func(c *client, _ *fakePool) *SSP { return c.ssp.With(options(func(o *Options) { o.MaxInFlight = 2 })) },
			"another pool": func(c *client, p *fakePool) *SSP {
				return c.ssp.movedTo(options(func(o *Options) { o.MaxInFlight = 2 }), p)
			},
		} {
			p := &fakePool{steps: []step{after(10*msec, fill())}}
			c := newClient(t, p, nil)
			results := c.start(2)
			time.Sleep(msec)
			n := c.on(next(c, p))
			n.get().want(exchange.Overloaded).wantDetail("2 of 2", "max_in_flight")
			for range 2 {
				(<-results).want(exchange.Fill)
			}
			n.get().want(exchange.Fill)
			testsupport.Equal(t, n.ssp.inFlight.Now(), 0, "%[2]s: %[1]d are in flight", name)
		}
	})
}

func TestBreakerStaysOpenAcrossAChangeOfItsSettings(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{}, nil)
		for range 100 {
			c.ssp.breaker.record(c.ssp.now(), sameClient, true)
		}
		for _, window := range []time.Duration{10 * time.Second, time.Second, 20 * time.Second} {
			was := c.becomes(func(o *Options) { o.Breaker.Window, o.Breaker.MinProbe = window, 0.2 })
			if got := c.ssp.Snapshot(); got.BreakerFailures != 100 || got.BreakerShedRatio < 0.79 || got.BreakerShedRatio > 0.81 {
				t.Fatalf("window %v: %+v, want 100 failures, and 0.8 shed", window, got)
			}
			got := was.breaker.opts.Window
			testsupport.MustTrue(t, got != window || window == 10*time.Second, "the settings of the previous SSP became %v", got)
		}
		c.becomes(func(o *Options) { o.Breaker.Window = time.Second })
		time.Sleep(time.Second + 100*msec)
		testsupport.Equal(t, c.ssp.Snapshot().BreakerRequests, 0, "%d requests are in a window of 1 s after more than that")
		c.becomes(func(o *Options) { o.Breaker.Enabled = false })
		for range 100 {
			c.ssp.breaker.record(c.ssp.now(), sameClient, true)
		}
		c.get().want(exchange.Fill)
	})
}

func TestPauseContinuesWithinTheNewMaximum(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{response(503, "", "Retry-After: 20"), fill()}}, nil)
		c.get().want(exchange.ServerError)
		was := c.becomes(func(o *Options) { o.RetryMax = 3 })
		c.get().want(exchange.SSPBackoff)
		testsupport.Equal(t, c.ssp.Snapshot().BackoffSeconds, 20, "%v s are left")
		c.becomes(func(o *Options) { o.RetryAfterMax = 2 * time.Second })
		time.Sleep(2*time.Second - 1)
		c.get().want(exchange.SSPBackoff)
		time.Sleep(time.Nanosecond)
		c.get().want(exchange.Fill)
		was.pause.until.Store(int64(was.now() + time.Hour))
		c.becomes(func(o *Options) { o.RetryAfterMax = 0 })
		c.get().want(exchange.Fill)
	})
}

// A request that began before a reload may start a pause after it. The new maximum holds for it too.
func TestPauseThatAnEarlierRequestStartsIsWithinTheNewMaximum(t *testing.T) {
	for _, limit := range []time.Duration{0, 2 * time.Second} {
		testsupport.Bubble(t, func(t *testing.T) {
			c := newClient(t, &fakePool{steps: []step{after(10*msec, response(503, "", "Retry-After: 20"))}}, nil)
			results := c.on(c.ssp).start(1)
			time.Sleep(5 * msec)
			c.becomes(func(o *Options) { o.RetryAfterMax = limit })
			(<-results).want(exchange.ServerError)
			testsupport.Equal(t, c.ssp.Snapshot().BackoffSeconds, limit.Seconds(), "the pause lasts %v s")
		})
	}
}

func TestAnotherHedgeQuantileUsesTheLearnedLatencies(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := learnt(t, &fakePool{steps: []step{after(20*msec, fill())}}, nil)
		c.becomes(func(o *Options) { o.Hedge = HedgeOptions{Enabled: true, Quantile: 0.25} })
		testsupport.MustTrue(t, c.ssp.lateAfter.get() != 0, "the learned state is lost")
		for range 300 { // so that the median is 20 ms, and the first quartile still 10 ms
			c.get().want(exchange.Fill)
		}
		testsupport.Between(t, c.ssp.lateAfter.get(), 10*msec, 11*msec, "late is %v, want the first quartile of 10ms")
	})
}

func TestSuccessorsBucketLacksTheTakenTokens(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{}, func(o *Options) { o.QPS = QPSOptions{Limit: 10, Burst: 4} })
		for range 4 {
			c.get().want(exchange.Fill)
		}
		c.get().want(exchange.QPSLimit)
		c.becomes(func(o *Options) { o.QPS = QPSOptions{Limit: 10, Burst: 4}; o.RetryMax = 0 })
		c.get().want(exchange.QPSLimit) // the bucket is the same
		c.becomes(func(o *Options) { o.QPS = QPSOptions{Limit: 100, Burst: 6} })
		c.get().want(exchange.Fill) // two more at once
		c.get().want(exchange.Fill)
		c.get().want(exchange.QPSLimit)
		time.Sleep(10 * msec)
		c.get().want(exchange.Fill)
		for range 6 { // all tokens of this bucket are taken
			c.get()
		}
		c.becomes(func(o *Options) { o.QPS = QPSOptions{Limit: 10, Burst: 1} })
		c.get().want(exchange.QPSLimit)
		time.Sleep(100 * msec) // the time of one token, though more were missing
		c.get().want(exchange.Fill)
		testsupport.Equal(t, c.ssp.Snapshot().QPSLimited, 10, "%d are counted as over the limit")
	})
}

// A request may have begun long before it takes its token.
func TestFullBucketIsFullForRequestsThatBeganBeforeIt(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{}, func(o *Options) { o.QPS = QPSOptions{Limit: 1e6} })
		c.get().want(exchange.Fill)
		r := c.request(exchange.GET)
		time.Sleep(200 * msec) // twice as long as the next bucket takes to fill
		c.becomes(func(o *Options) { o.QPS = QPSOptions{Limit: 9e5} })
		c.do(r).want(exchange.Fill)
	})
}

func TestAnotherPoolForgetsLearnedStateAndKeepsCounters(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		with := func(o *Options) {
			o.MaxInFlight, o.QPS = 100, QPSOptions{Limit: 1, Burst: 3}
		}
		c := newClient(t, &fakePool{steps: []step{response(503, "", "Retry-After: 20")}}, with)
		c.get().want(exchange.ServerError)
		c.get().want(exchange.SSPBackoff)
		for range 100 {
			c.ssp.breaker.record(c.ssp.now(), sameClient, true)
		}
		c.ssp.breaker.shed.Add(5)
		c.ssp = c.ssp.movedTo(options(with), &fakePool{steps: []step{fill()}, host: "other.example"})
		c.get().want(exchange.Fill)
		got := c.ssp.Snapshot()
		testsupport.True(t, got.BreakerFailures == 0 && got.BackoffSeconds == 0 && got.ConcurrencyLimit == 100, "%+v, want no learned state", got)
		testsupport.True(t, got.Sent == 2 && got.Outcomes["server_error"] == 1 && got.Outcomes["ssp_backoff"] == 1 && got.BreakerShed == 5, "%+v, want the counts to continue", got)
		c.get().want(exchange.Fill)
		c.get().want(exchange.QPSLimit) // the new SSP object shares the rate
	})
}

func TestNameOfAnSSPCannotChange(t *testing.T) {
	c := newClient(t, &fakePool{}, nil)
	defer func() {
		testsupport.True(t, recover() != nil, "no panic")
	}()
	c.becomes(func(o *Options) { o.Name = "another" })
}
