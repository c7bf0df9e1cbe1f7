package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// loaded sends a request every interval until stop is called. stop returns how many failed.
func loaded(t *testing.T, p *Pool, every time.Duration) (stop func() (failed int)) {
	var wg sync.WaitGroup
	var failed atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for ctx.Err() == nil {
			wg.Go(func() {
				ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(300 * msec), Redials: 1}}
				place, err := p.Acquire(ex)
				if err == nil {
					time.Sleep(5 * msec)
					err = place.Do(ex)
					ex.Times.Done = time.Now()
					place.Ended(exchange.Fill, exchange.Success, 0, &ex.Times)
				}
				if err != nil {
					failed.Add(1)
					t.Log(err)
				}
			})
			time.Sleep(every)
		}
	})
	return func() int {
		cancel()
		wg.Wait()
		return int(failed.Load())
	}
}

// While operators change endpoints under load, no request fails, and a drained or disabled endpoint
// gets no new request.
func TestEndpointsChangeByHandUnderLoad(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP1Pipelined, exchange.HTTP2} {
		testsupport.RunBubble(t, protocol.String(), func(t *testing.T) {
			s := endpointsSSP(t, 3)
			s.always(dialResult{after: 10 * msec, protocol: protocol})
			p := start(t, s, func(o *Options) { withWeights(1, 1, 1)(o); o.Protocol = protocol; o.MaxPending = 100 })
			stop := loaded(t, p, msec)
			pass(100 * msec)
			for _, state := range []balancer.State{balancer.Draining, balancer.Disabled} {
				for _, name := range []string{"a:80", "c:80"} {
					testsupport.True(t, p.SetEndpointState(name, state) && !p.SetEndpointState("no.such:80", state), "SetEndpointState reports the wrong endpoint as missing")
					pass(20 * msec)
					before := servedBy(p, name)
					pass(200 * msec)
					testsupport.Equal(t, servedBy(p, name)-before, 0, "%[2]s got %[1]d requests although it is %[3]v", name, state)
					n := len(s.openTo(name))
					testsupport.True(t, state != balancer.Disabled || n == 0, "%s is disabled and has %d connections", name, n)
					p.SetEndpointState(name, balancer.Enabled)
					pass(200 * msec)
					testsupport.AtLeast(t, servedBy(p, name)-before, 50, "%[2]s got %[1]d requests after it was enabled", name)
				}
			}
			testsupport.True(t, p.SetEndpointWeight("b:80", 8) && !p.SetEndpointWeight("no.such:80", 8), "SetEndpointWeight reports the wrong endpoint as missing")
			pass(50 * msec)
			a, b := servedBy(p, "a:80"), servedBy(p, "b:80")
			pass(sec)
			if a, b = servedBy(p, "a:80")-a, servedBy(p, "b:80")-b; b < 7*a || b > 9*a {
				t.Errorf("with weights 1 and 8, a got %d requests and b %d", a, b)
			}
			testsupport.Equal(t, stop(), 0, "%d requests failed")
		})
	}
}

func servedBy(p *Pool, name string) int {
	for _, e := range p.Snapshot().Endpoints {
		if e.Endpoint == name {
			return int(e.Requests["fill"])
		}
	}
	return -1
}

// A drained or disabled SSP refuses requests. Requests that were admitted before still complete.
func TestWholeSSPByHand(t *testing.T) {
	withEndpoints(t, 2, withWeights(1, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		serve(t, p, 20, msec, nil)
		for _, state := range []balancer.State{balancer.Draining, balancer.Disabled} {
			held := acquire(t, p)
			p.SetState(state)
			testsupport.True(t, p.Refusing() && p.Snapshot().State == state.String(), "%v: not refusing", state)
			late := acquire(t, p) // admitted just before the change
			finish(late, false)
			finish(held, false)
			pass(2 * sec)
			if n := s.openCount(); state == balancer.Disabled && n > 1 || state == balancer.Draining && n == 0 {
				t.Errorf("%v: %d connections are open", state, n)
			}
			p.SetState(balancer.Enabled)
			testsupport.True(t, !p.Refusing(), "still refusing")
			serve(t, p, 20, msec, nil)
		}
		p.SetEndpointState("a:80", balancer.Draining)
		testsupport.True(t, !p.Refusing(), "refuses although b is enabled")
		p.SetEndpointState("b:80", balancer.Disabled)
		testsupport.True(t, p.Refusing(), "does not refuse although no endpoint is enabled")
		for _, e := range p.Snapshot().Endpoints {
			testsupport.True(t, e.Share == 0 && !e.Active, "%s is %s, and gets %v of the requests (active: %v)", e.Endpoint, e.State, e.Share, e.Active)
		}
	})
}

// Idle connections do not wait for the janitor.
func TestDisabledSSPClosesItsIdleConnectionsAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 3)
		p.SetState(balancer.Disabled)
		pass(0)
		testsupport.Equal(t, s.openCount(), 0, "%d connections stay open")
	})
}

// A connection whose dial or check is under way when the SSP is disabled closes like the idle ones.
func TestDisabledSSPKeepsNoConnection(t *testing.T) {
	testsupport.RunBubble(t, "dial", func(t *testing.T) {
		s := newHTTP2SSP(t)
		p := start(t, s, multiplexed)
		r := ask(t, p, 5*msec)
		pass(5 * msec)
		r.wantErr(exchange.Deadline, 5*msec)
		p.SetState(balancer.Disabled)
		pass(10 * msec)
		testsupport.True(t, s.dialCount() == 1 && s.openCount() == 0, "%d dials brought %d connections that stay open", s.dialCount(), s.openCount())
	})
	runInBubble(t, "check", nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 1)
		p.duringCheck(func() { p.SetState(balancer.Disabled) })
		testsupport.Equal(t, s.openCount(), 0, "%d connections stay open")
	})
}

// While the SSP is drained or disabled, the pool dials no endpoint to find out whether it works.
func TestDisabledSSPIsNotDialled(t *testing.T) {
	withEndpoints(t, 2, func(o *Options) { withWeights(1, 1)(o); o.Ejection.Enabled = false }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuseAt("b:80")
		serve(t, p, 100, 10*msec, nil)
		testsupport.MustTrue(t, p.Snapshot().Endpoints[1].Unreachable, "b is reachable")
		p.SetState(balancer.Disabled)
		dials := s.dialCount()
		pass(time.Minute)
		testsupport.Equal(t, s.dialCount()-dials, 0, "%d dials in a minute")
		s.set(nil)
		p.SetState(balancer.Enabled)
		testsupport.AtLeast(t, serve(t, p, 100, msec, nil)["b:80"], 40, "b got %d of 100 requests after the SSP was enabled")
	})
}

// A pool that replaces another one keeps the states that operators set, and the counts.
func TestPoolInherits(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := endpointsSSP(t, 3)
		before := start(t, s, withWeights(1, 1, 1))
		serve(t, before, 30, msec, nil)
		before.SetEndpointState("a:80", balancer.Draining)
		before.SetEndpointWeight("b:80", 3)
		served := servedBy(before, "b:80")

		s = endpointsSSP(t, 4)
		after := start(t, s, withWeights(1, 1, 1, 1))
		after.Inherit(before)
		serve(t, after, 30, 5*msec, nil)
		got := serve(t, after, 500, msec, nil)
		testsupport.True(t, got["a:80"] == 0 && got["b:80"] == 300, "500 requests were shared %v, want none for a and 300 for b", got)
		testsupport.AtLeast(t, servedBy(after, "b:80"), served+300, "b's counter is %d, want %d as before", served)
		before.SetState(balancer.Disabled)
		after.Inherit(before)
		testsupport.True(t, after.Refusing(), "the state of the SSP is lost")
	})
}
