package ssp

import (
	"testing"
	"time"

	"adbuffer/internal/rates"
	"adbuffer/internal/upstream"
)

// quietPool has one place that responds at once, and allocates nothing.
type quietPool struct{ status int }

func (p *quietPool) Acquire(ex *upstream.Exchange) (place, error) {
	if ex.Times.Queued.IsZero() {
		ex.Times.Queued = time.Now()
	}
	ex.Times.Acquired = ex.Times.Queued
	return p, nil
}

func (p *quietPool) Do(ex *upstream.Exchange) error {
	ex.Response.Status = p.status
	ex.Response.Fields = append(ex.Response.Fields, "Content-Type: application/json\r\n"...)
	ex.Response.Body = append(ex.Response.Body, `{"seatbid":[{"bid":[{}]}]}`...)
	ex.Times.FirstByte = ex.Times.Acquired
	ex.Times.Done = ex.Times.Acquired
	return nil
}

func (p *quietPool) Release(*upstream.Exchange) {}

func (p *quietPool) Protocol() upstream.Protocol { return upstream.HTTP1 }

func (p *quietPool) Refusing() bool { return false }

func (p *quietPool) Ended(upstream.Outcome, upstream.Result, rates.Group, *upstream.Times) bool {
	return false
}

func (p *quietPool) Left() uint64 { return 0 }

func (p *quietPool) Host() string { return "rtb.openx.example" }

func newQuietClient(t testing.TB, with func(o *Options)) *client {
	c := &client{t: t, ssp: newSSP(options(with), &quietPool{200}), budget: upstream.NewBudget(1 << 20)}
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
