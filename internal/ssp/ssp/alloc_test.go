//go:build !race

package ssp

import (
	"context"
	"testing"
	"time"

	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// quietConn is a connection that responds at once, and a dialer of such connections.
type quietConn struct{ owner exchange.Owner }

func (*quietConn) Addresses(context.Context) ([]exchange.Address, error) { return quietAddresses, nil }

var quietAddresses = []exchange.Address{{Endpoint: exchange.Endpoint{Authority: "rtb.openx.example"}}}

func (*quietConn) Dial(_ context.Context, _ exchange.Address, _ []exchange.Address, _ bool, owner exchange.Owner) (pool.Dialed, error) {
	return pool.Dialed{Conn: &quietConn{owner}}, nil
}

func (c *quietConn) Do(ex *exchange.Exchange) error {
	ex.Response.Status = 200
	ex.Response.Fields = append(ex.Response.Fields, "Content-Type: application/json\r\n"...)
	ex.Response.Body = append(ex.Response.Body, `{"seatbid":[{"bid":[{}]}]}`...)
	ex.Times.FirstByte = ex.Times.Acquired
	ex.Times.Done = ex.Times.Acquired
	c.owner.Freed(0, ex.Ticket)
	return nil
}

func (*quietConn) Protocol() exchange.Protocol       { return exchange.HTTP1 }
func (*quietConn) Places() int                       { return 1 }
func (*quietConn) Idle() bool                        { return true }
func (*quietConn) Close(exchange.CloseReason)        {}
func (*quietConn) CloseReason() exchange.CloseReason { return exchange.NotClosed }
func (*quietConn) IdleLimit() time.Duration          { return exchange.NoIdleLimit }

// newQuietClient returns a client of an SSP on a pool whose connections respond at once.
func newQuietClient(t testing.TB, with func(o *Options)) *client {
	p := pool.New(pool.Options{
		SSP: "openx", MaxConns: 64, MaxHTTP2Conns: 1, MaxIdle: 64, MaxPending: -1, PendingTimeout: time.Hour, MaxDials: 64,
		BackoffMin: time.Second, BackoffMax: time.Second, ConnectTimeout: time.Hour, Protocol: exchange.HTTP1,
	}, new(quietConn))
	t.Cleanup(func() { p.Close(context.Background()) })
	c := &client{t: t, ssp: New(options(with), p), budget: exchange.NewBudget(1 << 20)}
	c.head("Host: ads.example\r\nUser-Agent: phone\r\nAccept: */*\r\nContent-Type: application/json\r\n\r\n")
	return c
}

// alloc sends one request on one exchange.
func (c *client) alloc(ex *exchange.Exchange, r *Request) {
	ex.Times = exchange.Times{Queued: r.Received}
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
			o.QPS = QPSOptions{Limit: 1e7}
			o.NoBidBody = NoBidOpenRTB
		},
		"shape": func(o *Options) {
			o.QPS = QPSOptions{Limit: 1e7, Shaped: true}
			o.Shape = ShapeOptions{Keys: []string{"header:User-Agent", "query:slot", "openrtb:/tmax", "openrtb:/imp/0/id"}, Explore: 0.03}
		},
		"tmax and gzip": func(o *Options) {
			o.RewriteTmax = true
			o.Compress = CompressOptions{Coding: CodingGzip, MinBytes: 1}
		},
		"zstd": func(o *Options) { o.Compress = CompressOptions{Coding: CodingZstd, MinBytes: 1} },
	} {
		c := newQuietClient(t, with)
		r := c.withTmax("300")
		r.Deadline = r.Deadline.Add(time.Minute) // for all runs
		ex := exchange.AcquireExchange()
		for _, which := range []string{"itself", "a successor"} {
			n := testing.AllocsPerRun(1000, func() { c.alloc(ex, r) })
			testsupport.True(t, n == 0, "%s, %s: %v allocations a request, want none", name, which, n)
			c.ssp = c.ssp.With(options(with))
		}
		ex.Release()
	}
}

// refusing are SSPs whose limits refuse requests: all, or most of them.
var refusing = map[exchange.Outcome]func(s *SSP){
	exchange.BreakerOpen: func(s *SSP) {
		for range 100000 {
			s.breaker.record(0, sameClient, true)
		}
	},
	exchange.SSPBackoff: func(s *SSP) { s.pause.until.Store(int64(time.Hour)) },
	exchange.Overloaded: func(s *SSP) {
		s.inFlight.SetLimit(1)
		s.inFlight.Acquire()
	},
	exchange.Shaped: func(s *SSP) {
		s.shape = newShape(&Options{QPS: QPSOptions{Limit: 1e-3, Shaped: true}, Shape: ShapeOptions{Keys: []string{"query:slot"}, Explore: 0.005}}, nil, s.made)
		for range 1000 {
			s.shape.Decide(new(shaper.Segment), 0, s.made)
		}
		s.shape.Report(s.made.Add(time.Second))
	},
	exchange.QPSLimit: func(s *SSP) {
		s.qps.init(QPSOptions{Limit: 1e-3, Burst: 1}, s.made)
		s.qps.take(0)
	},
}

// A flood of requests that a limit refuses costs no memory, whatever their errors say.
func TestRefusedRequestAllocatesNothing(t *testing.T) {
	for want, prepare := range refusing {
		c := newQuietClient(t, nil)
		prepare(c.ssp)
		r := c.request(exchange.GET)
		r.Received = c.ssp.made
		ex := exchange.AcquireExchange()
		refused := 0
		n := testing.AllocsPerRun(1000, func() {
			ex.Times = exchange.Times{Queued: r.Received}
			ex.ReleaseBody()
			ex.Response.Reset()
			if got, err := c.ssp.Do(r, ex, 0); got == want && err.Detail != "" {
				refused++
			}
		})
		testsupport.True(t, n == 0 && refused >= 800, "%v: %v allocations a request, want none; %d of 1001 were refused", want, n, refused)
		ex.Release()
	}
}

func TestCountingAResponseAllocatesNothing(t *testing.T) {
	s := newSSP(options(func(o *Options) { o.NoBidBody = NoBidOpenRTB }), &fakePool{})
	r, a := &Request{Method: exchange.GET}, &exchange.Response{Status: 200, Body: []byte(`{"nbr":2}`)}
	testsupport.Equal(t, testing.AllocsPerRun(100, func() { s.classify(r, a) }), 0, "%v allocations")
}
