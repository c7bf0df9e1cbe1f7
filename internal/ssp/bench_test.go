package ssp

import (
	"context"
	"testing"
	"time"

	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// quietConn is a connection that responds at once, and a dialer of such connections.
type quietConn struct{ owner upstream.Owner }

func (*quietConn) Addresses(context.Context) ([]upstream.Address, error) { return quietAddresses, nil }

var quietAddresses = []upstream.Address{{Endpoint: upstream.Endpoint{Authority: "rtb.openx.example"}}}

func (*quietConn) Dial(_ context.Context, _ upstream.Address, _ []upstream.Address, _ bool, owner upstream.Owner) (pool.Dialed, error) {
	return pool.Dialed{Conn: &quietConn{owner}}, nil
}

func (c *quietConn) Do(ex *upstream.Exchange) error {
	ex.Response.Status = 200
	ex.Response.Fields = append(ex.Response.Fields, "Content-Type: application/json\r\n"...)
	ex.Response.Body = append(ex.Response.Body, `{"seatbid":[{"bid":[{}]}]}`...)
	ex.Times.FirstByte = ex.Times.Acquired
	ex.Times.Done = ex.Times.Acquired
	c.owner.Freed(0, ex.Payer)
	return nil
}

func (*quietConn) Protocol() upstream.Protocol       { return upstream.HTTP1 }
func (*quietConn) Places() int                       { return 1 }
func (*quietConn) Idle() bool                        { return true }
func (*quietConn) Close(upstream.CloseReason)        {}
func (*quietConn) CloseReason() upstream.CloseReason { return upstream.NotClosed }

// newQuietClient returns a client of an SSP on a pool whose connections respond at once.
func newQuietClient(t testing.TB, with func(o *Options)) *client {
	p := pool.New(pool.Options{
		SSP: "openx", MaxConns: 64, MaxHTTP2Conns: 1, MaxIdle: 64, MaxPending: -1, PendingTimeout: time.Hour, MaxDials: 64,
		BackoffMin: time.Second, BackoffMax: time.Second, ConnectTimeout: time.Hour, Protocol: upstream.HTTP1,
	}, new(quietConn))
	t.Cleanup(func() { p.Close(context.Background()) })
	c := &client{t: t, ssp: New(options(with), p), budget: upstream.NewBudget(1 << 20)}
	c.head("Host: ads.example\r\nUser-Agent: phone\r\nAccept: */*\r\nContent-Type: application/json\r\n\r\n")
	return c
}

func benchmarkDo(b *testing.B, want upstream.Outcome, with func(o *Options), prepare func(s *SSP)) {
	c := newQuietClient(b, with)
	if prepare != nil {
		prepare(c.ssp)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ex := upstream.AcquireExchange()
		r := c.withTmax("300")
		if c.ssp.opts.Hedge.Enabled {
			r.Method, r.Deadline = upstream.GET, r.Received.Add(time.Hour)
		}
		for pb.Next() {
			ex.Times = upstream.Times{Queued: r.Received}
			ex.ReleaseBody()
			ex.Response.Reset()
			if o, _ := c.ssp.Do(r, ex, 0); o != want {
				b.Fatal(o)
			}
		}
		ex.Release()
	})
}

func BenchmarkDo(b *testing.B) { benchmarkDo(b, upstream.Fill, nil, nil) }

func BenchmarkDoWithEveryLimit(b *testing.B) {
	benchmarkDo(b, upstream.Fill, func(o *Options) {
		o.MaxInFlight, o.RetryAfterShare = 1000, 0.5
		o.Adaptive.Enabled = true
		o.QPS = QPSOptions{Limit: 1e7, Burst: 1e7}
	}, nil)
}

func BenchmarkDoShedByTheBreaker(b *testing.B) {
	benchmarkDo(b, upstream.BreakerOpen, func(o *Options) { o.Breaker.MinProbe = 1e-12 }, func(s *SSP) {
		for range 1000 {
			s.breaker.record(s.now(), sameClient, true)
		}
	})
}

func BenchmarkDoRewritesTmax(b *testing.B) {
	benchmarkDo(b, upstream.Fill, func(o *Options) { o.RewriteTmax = true }, nil)
}

func BenchmarkDoThatMayBeHedged(b *testing.B) {
	benchmarkDo(b, upstream.Fill, func(o *Options) { o.Hedge.Enabled = true }, func(s *SSP) {
		s.lateAfter.value.Store(int64(100 * msec))
		s.lateAfter.refresh.Store(1 << 62)
	})
}

func BenchmarkDoPaused(b *testing.B) {
	benchmarkDo(b, upstream.SSPBackoff, nil, func(s *SSP) { s.backoff.until.Store(1 << 62) })
}

func BenchmarkBreaker(b *testing.B) {
	var br breaker
	br.init(options(nil).Breaker)
	for i := range 1000 {
		br.record(0, 0, i%2 == 0)
	}
	b.ReportAllocs()
	for i := range b.N {
		now := time.Duration(i) * 10 * time.Microsecond
		if br.refuse(now) == nil {
			br.record(now, 0, i%2 == 0)
		}
	}
}

func BenchmarkQPS(b *testing.B) {
	var q qps
	q.init(QPSOptions{Limit: 1e5}, time.Now())
	b.ReportAllocs()
	for i := range b.N {
		q.take(time.Duration(i) * 10 * time.Microsecond)
	}
}

func BenchmarkQuantile(b *testing.B) {
	var q quantile
	q.init(0.95)
	b.ReportAllocs()
	for i := range b.N {
		q.observe(time.Duration(i)*10*time.Microsecond, time.Duration(i%1000)*100*time.Microsecond)
	}
}

func BenchmarkGzip4KB(b *testing.B) {
	c := newQuietClient(b, nil)
	r := c.withTmax("300")
	for len(r.Body) < 4096 {
		r.Body = append(r.Body, `,"imp":[{"id":"1","banner":{"w":320,"h":50}}]`...)
	}
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(r.Body)))
	for range b.N {
		dst, _ = appendGzip(dst[:0], r.Body)
	}
}
