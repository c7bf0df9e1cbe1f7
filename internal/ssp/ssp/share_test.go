package ssp

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// All responses of an SSP that are held at once share its limit, even after a reload that changed
// its settings.
func TestResponsesOfAnSSPReserveAtMostItsShare(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		body := strings.Repeat("x", 600)
		p := &fakePool{steps: []step{response(200, body), response(200, body), response(200, body), response(200, body), response(200, body)}}
		c := newClient(t, p, func(o *Options) { o.MaxBufferedBytes = 1000 })
		c.held = 0
		first := exchange.AcquireExchange()
		c.doOn(first, c.request(exchange.GET), 0).want(exchange.Fill)
		c.get().want(exchange.Overloaded).wantDetail("600 of 1000", "ssps[].max_buffered_bytes")
		_, failures := c.ssp.window.Tally()
		testsupport.True(t, failures == 0, "the breaker counts %d failures", failures)
		was := c.ssp
		c.ssp = was.With(options(func(o *Options) { o.MaxBufferedBytes = 1200 }))
		second := exchange.AcquireExchange()
		c.doOn(second, c.request(exchange.GET), 0).want(exchange.Fill)
		s := c.ssp.Snapshot()
		testsupport.True(t, s.BufferedBytes == 1200 && s.BufferedBytesLimit == 1200, "%d of %d bytes are held, want all of 1200", s.BufferedBytes, s.BufferedBytesLimit)
		c.ssp = c.ssp.movedTo(options(func(o *Options) { o.MaxBufferedBytes = 1300 }), p)
		c.get().want(exchange.Overloaded)
		first.Release()
		c.get().want(exchange.Fill)
		second.Release()
		c.wantIdle()
	})
}

// A request's body counts against the share of its SSP, also while there is no response. Otherwise an SSP that
// hangs with clients' bodies in flight would take the memory of the others.
func TestRequestsOfAnSSPHoldAtMostThreeQuartersOfItsShare(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		// The first request has ended when the second response arrives: a quarter is room for one.
		ad := response(200, strings.Repeat("x", 250))
		p := &fakePool{steps: []step{after(100*msec, ad), after(200*msec, ad)}}
		c := newClient(t, p, func(o *Options) { o.MaxBufferedBytes = 1000 })
		c.held = 375
		var held []*exchange.Exchange
		done := make(chan *exchange.Exchange, 2)
		for range 2 {
			go func() {
				ex := exchange.AcquireExchange()
				c.doOn(ex, c.request(exchange.POST), 0)
				done <- ex
			}()
		}
		synctest.Wait()
		c.held = 1
		c.do(c.request(exchange.POST)).want(exchange.Overloaded).wantDetail("the request", "750 of 1000", "ssps[].max_buffered_bytes")
		testsupport.Equal(t, c.ssp.inFlight.Now(), 2, "%d requests are in flight, want the first two")
		c.wantSent(p, 2)
		for range 2 {
			ex := <-done
			testsupport.Equal(t, ex.Response.Status, 200, "a response found no room beside the bodies of requests: %v")
			held = append(held, ex)
		}
		testsupport.Equal(t, c.ssp.buffered.Used(), 500, "%d bytes are held, want the two responses' 500")
		for _, ex := range held {
			ex.Release()
		}
		c.wantIdle()
	})
}

// The body counts from the admission of a request, also while it waits for a place, until its last
// attempt has ended. It counts once for all its attempts.
func TestBodyCountsInTheShareUntilItsRequestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func(n int, ex *exchange.Exchange) error
		steps   []step
		cancel  bool
		gone    bool
		with    func(o *Options)
		want    exchange.Outcome
	}{
		"fill":    {want: exchange.Fill},
		"no bid":  {steps: []step{response(204, "")}, want: exchange.NoBid},
		"error":   {steps: []step{response(500, "sorry")}, want: exchange.ServerError},
		"retry":   {steps: []step{fail(notProcessed), fail(notSent), fill()}, want: exchange.Fill},
		"lost":    {steps: []step{fail(cutMidResponse)}, want: exchange.ConnLost},
		"refused": {acquire: func(int, *exchange.Exchange) error { return &refused }, want: exchange.ConnectFailed},
		"full queue": {acquire: func(int, *exchange.Exchange) error {
			return exchange.Errorf(exchange.PendingFull, exchange.NotSent, "")
		}, want: exchange.PendingFull},
		"waits for long":       {acquire: func(_ int, ex *exchange.Exchange) error { return sleep(ex, time.Hour) }, want: exchange.Deadline},
		"hangs":                {steps: []step{never()}, want: exchange.Deadline},
		"cancelled":            {steps: []step{never()}, cancel: true, want: exchange.Cancelled},
		"client gone":          {acquire: func(_ int, ex *exchange.Exchange) error { return sleep(ex, 10*msec) }, gone: true, want: exchange.ClientGone},
		"over the share":       {steps: []step{response(200, strings.Repeat("x", 2000))}, with: func(o *Options) { o.MaxBufferedBytes = 2500 }, want: exchange.Overloaded},
		"no room for its copy": {with: func(o *Options) { o.MaxBufferedBytes, o.RewriteTmax = 1350, true }, want: exchange.Overloaded},
		"with a copy":          {steps: []step{fail(notProcessed), fill()}, with: func(o *Options) { o.RewriteTmax = true }, want: exchange.Fill},
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			p := &fakePool{steps: tt.steps, acquire: tt.acquire}
			c := newClient(t, p, tt.with)
			r := c.withTmax("300")
			r.Gone = func() bool { return tt.gone }
			asked := 0
			look := func() {
				asked++
				testsupport.Equal(t, c.ssp.buffered.Used()-c.budget.Used(), r.Held, "%d bytes are held beside the response and copies")
			}
			p.acquire = func(n int, ex *exchange.Exchange) error {
				look()
				if tt.acquire != nil {
					return tt.acquire(n, ex)
				}
				return nil
			}
			for i := range p.steps {
				then := p.steps[i]
				p.steps[i] = func(ex *exchange.Exchange) error { look(); return then(ex) }
			}
			ex := exchange.AcquireExchange()
			if tt.cancel {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*msec, cancel)
				ex.Context = ctx
			}
			c.doOn(ex, r, 0).want(tt.want)
			testsupport.Equal(t, c.ssp.buffered.Used(), c.budget.Used(), "%d bytes are held in the share")
			ex.Release()
			c.wantIdle()
			testsupport.True(t, asked != 0, "the pool was not asked for a place")
		})
	}
}
