//go:build !race

package ssp

import (
	"testing"
	"time"

	"adbuffer/internal/upstream"
)

// alloc sends one request on one exchange.
func (c *client) alloc(ex *upstream.Exchange, r *Request) {
	ex.Times = upstream.Times{Queued: r.Received}
	ex.ReleaseBody()
	ex.Response.Reset()
	if _, err := c.ssp.Do(r, ex, 0); err != nil {
		c.t.Fatal(err)
	}
}

func TestSingleRequestAllocatesNothing(t *testing.T) {
	for name, with := range map[string]func(o *Options){
		"defaults": nil,
		"every limit": func(o *Options) {
			o.MaxInFlight = 10
			o.Adaptive.Enabled = true
			o.QPS = QPSOptions{Limit: 1e7}
			o.NoBidBody = NoBidOpenRTB
		},
		"tmax and gzip": func(o *Options) {
			o.RewriteTmax = true
			o.Gzip = GzipOptions{Enabled: true, MinBytes: 1}
		},
	} {
		c := newQuietClient(t, with)
		r := c.withTmax("300")
		ex := upstream.AcquireExchange()
		for _, which := range []string{"itself", "a successor"} {
			if n := testing.AllocsPerRun(1000, func() { c.alloc(ex, r) }); n != 0 {
				t.Errorf("%s, %s: %v allocations a request, want none", name, which, n)
			}
			c.ssp = c.ssp.With(options(with))
		}
		ex.Release()
	}
}

// refusing are SSPs whose limits refuse requests: all, or most of them.
var refusing = map[upstream.Outcome]func(s *SSP){
	upstream.BreakerOpen: func(s *SSP) {
		for range 100000 {
			s.breaker.record(0, sameClient, true)
		}
	},
	upstream.SSPBackoff: func(s *SSP) { s.pause.until.Store(int64(time.Hour)) },
	upstream.Overloaded: func(s *SSP) {
		s.inFlight.SetLimit(1)
		s.inFlight.Acquire()
	},
	upstream.QPSLimit: func(s *SSP) {
		s.qps.init(QPSOptions{Limit: 1e-3, Burst: 1}, s.made)
		s.qps.take(0)
	},
}

// A flood of requests that a limit refuses costs no memory, whatever their errors say.
func TestRefusedRequestAllocatesNothing(t *testing.T) {
	for want, prepare := range refusing {
		c := newQuietClient(t, nil)
		prepare(c.ssp)
		r := c.request(upstream.GET)
		r.Received = c.ssp.made
		ex := upstream.AcquireExchange()
		refused := 0
		n := testing.AllocsPerRun(1000, func() {
			ex.Times = upstream.Times{Queued: r.Received}
			ex.ReleaseBody()
			ex.Response.Reset()
			if got, err := c.ssp.Do(r, ex, 0); got == want && err.Detail != "" {
				refused++
			}
		})
		if n != 0 || refused < 800 {
			t.Errorf("%v: %v allocations a request, want none; %d of 1001 were refused", want, n, refused)
		}
		ex.Release()
	}
}

func TestCountingAResponseAllocatesNothing(t *testing.T) {
	s := newSSP(options(func(o *Options) { o.NoBidBody = NoBidOpenRTB }), &fakePool{})
	r, a := &Request{Method: upstream.GET}, &upstream.Response{Status: 200, Body: []byte(`{"nbr":2}`)}
	if n := testing.AllocsPerRun(100, func() { s.classify(r, a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
