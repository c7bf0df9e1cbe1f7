package pool

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/balancer"
	"adbuffer/internal/sizer"
	"adbuffer/internal/upstream"
)

// nullConn is a connection, and a Dialer, that does nothing, so that benchmarks measure the pool
// alone.
type nullConn struct {
	owner    upstream.Owner
	protocol upstream.Protocol
	places   int
	yield    bool

	endpoints int // of the SSP; 0 = 1
}

func (c *nullConn) Do(ex *upstream.Exchange) error {
	if c.yield {
		runtime.Gosched()
	}
	c.owner.Freed(time.Millisecond, ex.Payer)
	return nil
}
func (c *nullConn) Protocol() upstream.Protocol       { return c.protocol }
func (c *nullConn) Places() int                       { return c.places }
func (c *nullConn) Idle() bool                        { return true }
func (c *nullConn) Close(upstream.CloseReason)        {}
func (c *nullConn) CloseReason() upstream.CloseReason { return upstream.NotClosed }

func (c *nullConn) Addresses(context.Context) ([]upstream.Address, error) {
	all := addresses(max(c.endpoints, 1))
	for i := range all {
		all[i].Name = all[i].Host
	}
	return all, nil
}

func (c *nullConn) Dial(_ context.Context, _ upstream.Address, _ []upstream.Address, _ bool, owner upstream.Owner) (Dialed, error) {
	made := *c
	made.owner = owner
	return Dialed{Conn: &made}, nil
}

// startFor returns a pool whose connections are all open.
func startFor(b testing.TB, like nullConn, conns int) *Pool {
	o := testOptions()
	o.MaxConns, o.MaxIdle, o.MinIdle, o.MaxHTTP2Conns, o.MaxDials = conns, conns, conns, conns, conns
	o.Protocol, o.MaxStreams, o.MaxPending, o.PendingTimeout = like.protocol, like.places, -1, time.Hour
	o.IdleTimeout = 0
	o.Endpoints = nil
	for _, a := range addresses(max(like.endpoints, 1)) {
		o.Endpoints = append(o.Endpoints, balancer.Options{Name: a.Host, Weight: 1})
	}
	p := New(o, &like)
	if err := p.Warm(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close(context.Background()) })
	return p
}

// acquireAndRelease acquires a place, runs ex on it and releases it.
func acquireAndRelease(p *Pool, ex *upstream.Exchange) error {
	ex.Times.Queued = time.Time{}
	place, err := p.Acquire(ex)
	if err != nil {
		return err
	}
	return place.Do(ex)
}

func newExchange() *upstream.Exchange {
	return &upstream.Exchange{Deadline: time.Now().Add(time.Hour)}
}

// BenchmarkAcquire acquires places on idle connections, with one goroutine per P. Run it with -cpu
// 1,2,4,8.
func BenchmarkAcquire(b *testing.B) {
	for name, c := range map[string]nullConn{
		"exclusive":   {protocol: upstream.HTTP1, places: 1},
		"multiplexed": {protocol: upstream.HTTP2, places: 100},
	} {
		b.Run(name, func(b *testing.B) {
			conns := 256
			if c.protocol == upstream.HTTP2 {
				conns = 4
			}
			p := startFor(b, c, conns)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ex := newExchange()
				for pb.Next() {
					if err := acquireAndRelease(p, ex); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkWait runs four times as many goroutines as there are places, so most wait in the queue.
func BenchmarkWait(b *testing.B) {
	const places = 16
	p := startFor(b, nullConn{protocol: upstream.HTTP1, places: 1, yield: true}, places)
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for range 4 * places {
		all.Go(func() {
			ex := newExchange()
			for range b.N / (4 * places) {
				if err := acquireAndRelease(p, ex); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkRefuse sends requests that find the queue full.
func BenchmarkRefuse(b *testing.B) {
	p := startFor(b, nullConn{protocol: upstream.HTTP1, places: 1}, 1)
	changeOptions(p, func(o *Options) { o.MaxPending = 0 })
	held, err := p.Acquire(newExchange())
	if err != nil {
		b.Fatal(err)
	}
	defer held.Release(new(upstream.Exchange))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ex := newExchange()
		for pb.Next() {
			if acquireAndRelease(p, ex) == nil {
				b.Error("the request got a place")
			}
		}
	})
}

// BenchmarkSnapshot measures how long a scrape holds the lock.
func BenchmarkSnapshot(b *testing.B) {
	for name, conns := range map[string]int{"256": 256, "4096": 4096} {
		b.Run(name, func(b *testing.B) {
			p := startFor(b, nullConn{protocol: upstream.HTTP1, places: 1}, conns)
			for b.Loop() {
				p.Snapshot()
			}
		})
	}
}

// BenchmarkEndpoints acquires places from pools with few and with many endpoints. Both should cost
// the same.
func BenchmarkEndpoints(b *testing.B) {
	for name, c := range map[string]nullConn{
		"exclusive":   {protocol: upstream.HTTP1, places: 1},
		"multiplexed": {protocol: upstream.HTTP2, places: 100},
	} {
		for _, n := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s %d", name, n), func(b *testing.B) {
				c.endpoints = n
				p := startFor(b, c, 100)
				ex := newExchange()
				b.ReportAllocs()
				for b.Loop() {
					if err := acquireAndRelease(p, ex); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// startAutosized returns a pool of 256 connections that sizes itself.
func startAutosized(t testing.TB) *Pool {
	p := startFor(t, nullConn{protocol: upstream.HTTP1, places: 1}, 256)
	changeOptions(p, func(o *Options) { o.Auto = AutoSize{Enabled: true, MinConns: 16} })
	return p
}

// One operation is a tick of 50 pools. There are ten in a second, which may take a thousandth of a core: 100
// µs each.
func BenchmarkTickOf50Pools(b *testing.B) {
	var all []*Pool
	for range 50 {
		all = append(all, startAutosized(b))
	}
	now := time.Now()
	for b.Loop() {
		now = now.Add(sizer.Interval)
		for _, p := range all {
			for range 10 { // 100 a second for two seconds each, which need about 220 places
				p.stats.arrivals.Inc()
			}
			p.stats.hold.ObserveDuration(2 * sec)
			p.Tick(now, false)
		}
	}
}
