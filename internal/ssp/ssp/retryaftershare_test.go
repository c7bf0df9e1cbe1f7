package ssp

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// A client that provokes 429s must not pause the SSP for all other clients.
func Test429PausesOnlyAboveTheShare(t *testing.T) {
	busy := response(429, "", "Retry-After: 30")
	for _, c := range []struct {
		name           string
		share          float64
		fills, busy    int // responses before the last 429, in this order
		paused         bool
		waitBeforeLast time.Duration
	}{
		{name: "the first 429", share: 0.5},
		{name: "the second of two", share: 0.5, busy: 1},
		{name: "the third of three", share: 0.5, busy: 2, paused: true},
		{name: "one of 1000", share: 0.5, fills: 999},
		{name: "three of seven", share: 0.5, fills: 4, busy: 2},
		{name: "three of six", share: 0.5, fills: 3, busy: 2, paused: true},
		{name: "three of 300 where 0.01 is enough", share: 0.01, fills: 297, busy: 2, paused: true},
		{name: "three of 301 where 0.01 is enough", share: 0.01, fills: 298, busy: 2},
		{name: "all but one, with share 1", share: 1, fills: 1, busy: 50},
		{name: "all of three, with share 1", share: 1, busy: 2, paused: true},
		{name: "a single one where share is 0", share: 0, fills: 999, paused: true},
		{name: "the third, a second after two", share: 0.5, busy: 2, waitBeforeLast: time.Second},
		{name: "the third, 0.9 s after two", share: 0.5, busy: 2, waitBeforeLast: 900 * msec, paused: true},
		{name: "the fills are older than a second", share: 0.5, fills: 100, waitBeforeLast: time.Second},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			var steps []step
			for range c.fills {
				steps = append(steps, fill())
			}
			for range c.busy + 1 {
				steps = append(steps, busy)
			}
			p := &fakePool{steps: append(steps, fill())}
			cl := newClient(t, p, func(o *Options) { o.RetryAfterShare = c.share })
			for range c.fills {
				cl.get().want(exchange.Fill)
			}
			for range c.busy {
				cl.get().want(exchange.ClientError)
			}
			time.Sleep(c.waitBeforeLast)
			cl.get().want(exchange.ClientError)
			if c.paused {
				cl.get().want(exchange.SSPBackoff).wantDetail("retry_after_share", "retry_after_max")
				cl.wantPauses(1, c.busy)
			} else {
				cl.get().want(exchange.Fill)
				cl.wantPauses(0, c.busy+1)
			}
		})
	}
}

func Test503PausesWithAnyShare(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var steps []step
		for range 100 {
			steps = append(steps, fill())
		}
		c := newClient(t, &fakePool{steps: append(steps, response(503, "", "Retry-After: 1"), fill())}, func(o *Options) { o.RetryAfterShare = 1 })
		for range 100 {
			c.get().want(exchange.Fill)
		}
		c.get().want(exchange.ServerError)
		c.get().want(exchange.SSPBackoff)
		time.Sleep(time.Second)
		c.get().want(exchange.Fill)
	})
}

// A 429 that causes no pause still counts for the breaker.
func Test429WithoutAPauseCountsForTheBreaker(t *testing.T) {
	c := newClient(t, &fakePool{steps: []step{response(429, "", "Retry-After: 30"), fill()}}, func(o *Options) {
		o.RetryAfterShare = 0.5
		o.Breaker = BreakerOptions{Enabled: true, Window: time.Minute, MinRequests: 1, FailureRatio: 0.5, MinProbe: 0.1}
	})
	c.get().want(exchange.ClientError)
	s := c.ssp.Snapshot()
	testsupport.True(t, s.BreakerRequests == 1 && s.BreakerFailures == 0, "%d requests and %d failures, want 1 and 0", s.BreakerRequests, s.BreakerFailures)
}

func TestRetryAfterShareChangesInPlace(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{response(429, "", "Retry-After: 1")}}, func(o *Options) { o.RetryAfterShare = 1 })
		c.get().want(exchange.ClientError)
		c.becomes(func(o *Options) { o.RetryAfterShare = 0 })
		c.get().want(exchange.ClientError)
		c.get().want(exchange.SSPBackoff)
		time.Sleep(time.Second)
		c.becomes(func(o *Options) { o.RetryAfterShare = 1 })
		c.get().want(exchange.ClientError)
		c.get().want(exchange.ClientError)
		c.wantPauses(1, 3)

		c = newClient(t, &fakePool{steps: []step{response(429, ""), response(429, ""), response(429, "", "Retry-After: 1")}}, func(o *Options) { o.RetryAfterShare = 0 })
		c.get().want(exchange.ClientError)
		c.get().want(exchange.ClientError)
		c.becomes(func(o *Options) { o.RetryAfterShare = 0.5 })
		c.get().want(exchange.ClientError)
		c.wantPauses(0, 1) // the responses before the change do not count
	})
}
