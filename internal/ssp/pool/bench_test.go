package pool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// nullConn is a connection, and a Dialer, that does nothing, so that benchmarks measure the pool
// alone.
type nullConn struct {
	owner    exchange.Owner
	protocol exchange.Protocol
	places   int

	endpoints int // of the SSP; 0 = 1
}

func (c *nullConn) Do(ex *exchange.Exchange) error {
	c.owner.Freed(time.Millisecond, ex.Ticket)
	return nil
}
func (c *nullConn) Protocol() exchange.Protocol       { return c.protocol }
func (c *nullConn) Places() int                       { return c.places }
func (c *nullConn) Idle() bool                        { return true }
func (c *nullConn) Close(exchange.CloseReason)        {}
func (c *nullConn) CloseReason() exchange.CloseReason { return exchange.NotClosed }
func (*nullConn) IdleLimit() time.Duration            { return exchange.NoIdleLimit }

func (c *nullConn) Addresses(context.Context) ([]exchange.Address, error) {
	all := addresses(max(c.endpoints, 1))
	for i := range all {
		all[i].Name = all[i].Host
	}
	return all, nil
}

func (c *nullConn) Dial(_ context.Context, _ exchange.Address, _ []exchange.Address, _ bool, owner exchange.Owner) (Dialed, error) {
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
	testsupport.NoError(b, p.Warm(context.Background()))
	b.Cleanup(func() { p.Close(context.Background()) })
	return p
}

// acquireAndRelease acquires a place, runs ex on it and releases it.
func acquireAndRelease(p *Pool, ex *exchange.Exchange) error {
	ex.Times.Queued = time.Time{}
	place, err := p.Acquire(ex)
	if err != nil {
		return err
	}
	return place.Do(ex)
}

func newExchange() *exchange.Exchange {
	return &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(time.Hour)}}
}

// BenchmarkEndpoints acquires places from pools with few and with many endpoints. Both should cost
// the same.
func BenchmarkEndpoints(b *testing.B) {
	for name, c := range map[string]nullConn{
		"exclusive":   {protocol: exchange.HTTP1, places: 1},
		"multiplexed": {protocol: exchange.HTTP2, places: 100},
	} {
		for _, n := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s %d", name, n), func(b *testing.B) {
				c.endpoints = n
				p := startFor(b, c, 100)
				ex := newExchange()
				b.ReportAllocs()
				for b.Loop() {
					testsupport.NoError(b, acquireAndRelease(p, ex))
				}
			})
		}
	}
}
