//go:build !race

package pool

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var anyOrderSeed = flag.Uint64("anyorder.seed", 0, "runs TestPoolRecoversFromAnyOrderOfChanges with this seed only")

// Operators, reloads, DNS and the SSP change everything in a random order, under load. Afterwards all
// endpoints work again. Then each endpoint gets its requests, and no request fails or waits. A pool that
// closes under load leaves no connection.
func TestPoolRecoversFromAnyOrderOfChanges(t *testing.T) {
	testsupport.Long(t)
	seeds := []uint64{*anyOrderSeed}
	if *anyOrderSeed == 0 {
		seeds = nil
		for range 3 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		testsupport.Bubble(t, func(t *testing.T) { newAnyOrder(t, seed).run() })
	}
}

// anyOrder is a pool whose surroundings change at random.
type anyOrder struct {
	t    *testing.T
	seed uint64
	ssp  *fakeSSP
	pool *Pool
	base Options
	// kinds are the changes that happen. Each seed has some kinds only, since a change may repair the
	// effect of another one.
	kinds []int
	wg    sync.WaitGroup
	// changing says that clients and the surroundings change. Later no request is cancelled.
	changing atomic.Bool

	mu   sync.Mutex
	rand *rand.Rand
	sick [4]bool // endpoints that refuse connections or fail requests
	ill  bool    // the SSP closes connections at random
}

func newAnyOrder(t *testing.T, seed uint64) *anyOrder {
	a := &anyOrder{t: t, seed: seed, ssp: newFakeSSP(t), rand: rand.New(rand.NewPCG(seed, 1))}
	a.kinds = append(a.rand.Perm(7)[:1+a.rand.IntN(4)], 6)
	a.ssp.addrs = a.addresses()
	protocol := exchange.Protocol(a.n(int(exchange.Protocols)))
	a.ssp.set(func(c dialCall) dialResult { return a.dial(protocol, c) })
	a.ssp.do = a.do
	a.pool = start(t, a.ssp, func(o *Options) {
		withWeights(1, 1, 1, 1)(o)
		o.Protocol, o.MaxConns, o.MaxHTTP2Conns, o.MaxIdle, o.MaxDials = protocol, 8, 4, 8, 4
		o.MinIdle, o.MaxAge, o.IdleTimeout = a.n(3), time.Minute, 20*sec
		o.Ejection.MaxTime = 20 * sec
		o.Fair = a.n(2) == 0
		if a.n(2) == 0 {
			o.HealthCheck = HealthCheck{Path: "/health", Interval: sec, Timeout: sec, Unhealthy: 1 + a.n(3), Healthy: 1 + a.n(3)}
		}
	})
	a.base = a.pool.Options()
	return a
}

// n returns a random number below most.
func (a *anyOrder) n(most int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rand.IntN(most)
}

// addresses returns one to four addresses of each endpoint.
func (a *anyOrder) addresses() (all []exchange.Address) {
	for i, name := range names {
		first := a.n(4)
		for k := range 1 + a.n(4) {
			all = append(all, exchange.Address{
				Endpoint: exchange.Endpoint{Name: name, Host: name, Authority: name},
				AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(i), byte(first + k)}), 80),
			})
		}
	}
	return all
}

func (a *anyOrder) dial(protocol exchange.Protocol, c dialCall) dialResult {
	r := dialResult{after: time.Duration(a.n(30)) * msec, protocol: protocol}
	if protocol == exchange.Unknown {
		if r.protocol = exchange.HTTP1; c.offer {
			r.protocol = exchange.HTTP2
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, name := range names {
		if c.addr.Name == name && a.sick[i] {
			switch a.rand.IntN(3) {
			case 0:
				r.err = errRefused
			case 1:
				r.closed = exchange.ClosedByPeer
			}
		}
	}
	return r
}

func (a *anyOrder) do(c *fakeConn, ex *exchange.Exchange) error {
	time.Sleep(time.Duration(1+a.n(10)) * msec)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ill && a.rand.IntN(20) == 0 {
		c.closeItself(exchange.ClosedByPeer)
		return errFakeLost
	}
	for i, name := range names {
		if c.addr.Name == name && a.sick[i] {
			return errFakeLost
		}
	}
	ex.Response.Status = 200
	return nil
}

// request makes one request, and returns whether it succeeded.
func (a *anyOrder) request() bool {
	ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(300 * msec), Redials: 1}, FairKey: uint64(1 + a.n(20))}
	if a.n(4) == 0 {
		ex.Avoid, ex.Resent, ex.Refused = names[a.n(len(names))], true, true
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if a.changing.Load() && a.n(20) == 0 {
		ex.Context = ctx
		time.AfterFunc(time.Duration(a.n(20))*msec, cancel)
	}
	place, err := a.pool.Acquire(ex)
	if err != nil {
		return false
	}
	if a.n(50) == 0 {
		place.Release(ex)
		return true
	}
	err = place.Do(ex)
	ex.Times.Done = time.Now()
	o, result := exchange.Fill, exchange.Success
	if err != nil {
		o, result = exchange.ConnLost, exchange.Failure
	}
	place.Ended(o, result, 0, &ex.Times)
	return err == nil
}

// load makes a request every interval for d, and returns how many failed.
func (a *anyOrder) load(every, d time.Duration) (failed int) {
	var mu sync.Mutex
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		a.wg.Go(func() {
			if !a.request() {
				mu.Lock()
				defer mu.Unlock()
				failed++
			}
		})
	}
	a.wg.Wait()
	return failed
}

// change changes one thing.
func (a *anyOrder) change() {
	p, o := a.pool, a.pool.Options()
	name, state := names[a.n(len(names))], balancer.State(a.n(3))
	switch a.kinds[a.n(len(a.kinds))] {
	case 0:
		p.SetState(state)
	case 1:
		p.SetEndpointState(name, state)
	case 2:
		p.SetEndpointWeight(name, a.n(5))
	case 3:
		all := a.addresses()
		a.ssp.locked(func() { a.ssp.addrs = all })
	case 4:
		o.MaxConns = 1 + a.n(8)
		o.MaxHTTP2Conns, o.MaxIdle = 1+a.n(o.MaxConns), a.n(o.MaxConns+1)
		o.MinIdle = min(o.MinIdle, o.MaxIdle)
		o.MaxPending, o.Fair = a.n(40)-1, a.n(2) == 0
		o.ConnVersion += a.n(2)
		p.SetOptions(o)
	case 5:
		o.Endpoints = nil
		for i, e := range a.base.Endpoints {
			if i == 0 || a.n(2) == 0 {
				e.Priority = a.n(2)
				o.Endpoints = append(o.Endpoints, e)
			}
		}
		o.Ejection.Enabled, o.Ejection.DryRun = a.n(4) > 0, a.n(4) == 0
		o.HealthCheck.Paused = a.n(4) == 0
		p.SetOptions(o)
	case 6:
		a.mu.Lock()
		a.sick[a.rand.IntN(len(names))], a.ill = a.rand.IntN(2) == 0, a.rand.IntN(2) == 0
		a.mu.Unlock()
	}
}

func (a *anyOrder) run() {
	t, p := a.t, a.pool
	a.changing.Store(true)
	for range 100 {
		a.change()
		a.load(5*msec, time.Duration(1+a.n(300))*msec)
	}
	a.changing.Store(false)
	a.mu.Lock()
	a.sick, a.ill = [4]bool{}, false
	a.mu.Unlock()
	a.base.ConnVersion = p.Options().ConnVersion
	p.SetOptions(a.base)
	p.SetState(balancer.Enabled)
	for _, e := range p.Snapshot().Endpoints {
		if e.State != balancer.Enabled.String() && e.State != "ejected" && e.State != "unhealthy" {
			p.SetEndpointState(e.Endpoint, balancer.Enabled)
		}
		p.SetEndpointWeight(e.Endpoint, 0)
	}
	a.load(50*msec, 90*sec) // longer than max_age, max_time, and any pause
	before := p.Snapshot()
	testsupport.Equal(t, a.load(5*msec, 4*sec), 0, "%d requests failed")
	synctest.Wait()
	s := p.Snapshot()
	testsupport.True(t, s.PlacesInUse == 0 && s.Pending+s.WaitingForDials == 0, "%d places are in use, and %d requests wait", s.PlacesInUse, s.Pending+s.WaitingForDials)
	for i, e := range s.Endpoints {
		n := e.Requests["fill"] - before.Endpoints[i].Requests["fill"]
		testsupport.True(t, n >= 100 && e.State == "enabled" && e.Active && !e.Unreachable, "%s got %d of 800 requests: %+v", e.Endpoint, n, e)
	}
	n, most := multiplexedOf(p)
	testsupport.True(t, n <= most, "%d multiplexed connections, want at most %d", n, most)
	wantConsistent(t, p, a.ssp)
	testsupport.MustTrue(t, !t.Failed(), "seed %d, protocol %v", a.seed, a.base.Protocol)
}
