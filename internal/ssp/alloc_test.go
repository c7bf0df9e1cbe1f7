//go:build !race

package ssp

import (
	"context"
	"testing"
	"time"

	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// alloc sends one request on one exchange, through a pool that allocates nothing.
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

// oneConn is a connection that responds at once, and its dialer.
type oneConn struct{ owner upstream.Owner }

func (c *oneConn) Addresses(context.Context) ([]upstream.Address, error) {
	return []upstream.Address{{Endpoint: upstream.Endpoint{Authority: "rtb.openx.example"}}}, nil
}

func (c *oneConn) Dial(_ context.Context, _ upstream.Address, _ []upstream.Address, _ bool, owner upstream.Owner) (pool.Dialed, error) {
	c.owner = owner
	return pool.Dialed{Conn: c}, nil
}

func (c *oneConn) Do(ex *upstream.Exchange) error {
	ex.Response.Status = 204
	ex.Times.Done = ex.Times.Acquired
	c.owner.Freed(0, ex.Payer)
	return nil
}

func (c *oneConn) Protocol() upstream.Protocol       { return upstream.HTTP1 }
func (c *oneConn) Places() int                       { return 1 }
func (c *oneConn) Idle() bool                        { return true }
func (c *oneConn) Close(upstream.CloseReason)        {}
func (c *oneConn) CloseReason() upstream.CloseReason { return upstream.NotClosed }

func TestAcquiringFromAPoolAllocatesNothing(t *testing.T) {
	p := pool.New(pool.Options{
		SSP: "openx", MaxConns: 1, MaxHTTP2Conns: 1, MaxIdle: 1, MaxPending: 1, PendingTimeout: time.Second, MaxDials: 1,
		BackoffMin: time.Second, BackoffMax: time.Second, ConnectTimeout: time.Second, Protocol: upstream.HTTP1,
	}, new(oneConn))
	defer p.Close(t.Context())
	c := newQuietClient(t, nil)
	c.ssp = New(options(nil), p)
	if c.ssp.Pool() != p {
		t.Error("Pool returns another")
	}
	r := c.request(upstream.GET)
	r.Deadline = r.Received.Add(time.Minute)
	ex := upstream.AcquireExchange()
	if n := testing.AllocsPerRun(1000, func() { c.alloc(ex, r) }); n != 0 {
		t.Errorf("%v allocations a request, want none", n)
	}
	ex.Release()
}

func TestCountingAResponseAllocatesNothing(t *testing.T) {
	s := newSSP(options(func(o *Options) { o.NoBidBody = NoBidOpenRTB }), &fakePool{})
	r, a := &Request{Method: upstream.GET}, &upstream.Response{Status: 200, Body: []byte(`{"nbr":2}`)}
	if n := testing.AllocsPerRun(100, func() { s.classify(r, a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
