package ssp

import (
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// All responses of an SSP that are held at once share its limit, even after a reload that changed
// its settings.
func TestResponsesOfAnSSPReserveAtMostItsShare(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		body := strings.Repeat("x", 600)
		p := &fakePool{steps: []step{response(200, body), response(200, body), response(200, body), response(200, body), response(200, body)}}
		c := newClient(t, p, func(o *Options) { o.MaxBufferedBytes = 1000 })
		first := upstream.AcquireExchange()
		c.doOn(first, c.request(upstream.GET), 0).want(upstream.Fill)
		c.get().want(upstream.Overloaded).wantDetail("600 of 1000", "ssps[].max_buffered_bytes")
		if _, failures := c.ssp.window.Tally(); failures != 0 {
			t.Errorf("the breaker counts %d failures", failures)
		}
		was := c.ssp
		c.ssp = was.With(options(func(o *Options) { o.MaxBufferedBytes = 1200 }))
		second := upstream.AcquireExchange()
		c.doOn(second, c.request(upstream.GET), 0).want(upstream.Fill)
		if s := c.ssp.Snapshot(); s.BufferedBytes != 1200 || s.BufferedBytesLimit != 1200 {
			t.Errorf("%d of %d bytes are held, want all of 1200", s.BufferedBytes, s.BufferedBytesLimit)
		}
		c.ssp = c.ssp.movedTo(options(func(o *Options) { o.MaxBufferedBytes = 1300 }), p)
		c.get().want(upstream.Overloaded)
		first.Release()
		c.get().want(upstream.Fill)
		second.Release()
		c.wantIdle()
	})
}
