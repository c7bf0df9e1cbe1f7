package pool

import (
	"slices"
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// change gives the SSP and the pool the named endpoints, as a reload does.
func change(p *Pool, s *fakeSSP, to ...string) {
	o := p.Options()
	o.Endpoints = nil
	var addrs []exchange.Address
	for _, name := range to {
		o.Endpoints = append(o.Endpoints, balancer.Options{Name: name, Weight: 1})
		a := addresses(len(names))[slices.Index(names[:], name)]
		a.Name = name
		addrs = append(addrs, a)
	}
	s.locked(func() { s.addrs = addrs })
	p.SetOptions(o)
}

// openTo returns the open connections to an endpoint.
func (s *fakeSSP) openTo(name string) []*fakeConn {
	return slices.DeleteFunc(s.openConns(), func(c *fakeConn) bool { return c.addr.Name != name })
}

// An endpoint that a reload adds gets a connection before a request needs it.
func TestAddedEndpointIsDialledAtOnce(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		withEndpoints(t, 1, func(o *Options) { withWeights(1)(o); o.Protocol = protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 5 * msec, protocol: protocol})
			acquire(t, p).do()
			change(p, s, names[0], names[1])
			pass(50 * msec)
			testsupport.Equal(t, len(s.openTo(names[1])), 1, "%[2]v: %[1]d connections to the added endpoint", protocol)
		})
	}
}

// A changed list of endpoints fails no request. Connections to endpoints that stay remain open, and
// connections to removed ones close.
func TestEndpointsChangeInPlace(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		withEndpoints(t, 2, func(o *Options) { withWeights(1, 1)(o); o.Protocol = protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 5 * msec, protocol: protocol})
			stop := loaded(t, p, 2*msec)
			pass(sec)
			a := s.openTo(names[0])
			testsupport.MustTrue(t, len(a) != 0 && len(s.openTo(names[1])) != 0, "an endpoint has no connection")
			change(p, s, names[0], names[2])
			pass(sec)
			for _, c := range a {
				testsupport.Equal(t, c.reason, exchange.NotClosed, "%[2]v: a connection to an endpoint that stays closed: %[1]v", protocol)
			}
			testsupport.Equal(t, len(s.openTo(names[1])), 0, "%[2]v: %[1]d connections to the removed endpoint", protocol)
			testsupport.True(t, len(s.openTo(names[2])) != 0, "%v: no connection to the new endpoint", protocol)
			wantEqualShares(t, p, 2)
			change(p, s, names[2]) // one endpoint stays
			wantEqualShares(t, p, 1)
			change(p, s, names[2], names[1], names[0]) // removed endpoints come back
			pass(sec)
			wantEqualShares(t, p, 3)
			testsupport.Equal(t, stop(), 0, "%[2]v: %[1]d requests failed", protocol)
		})
	}
}

// wantEqualShares checks that n endpoints get equal shares of the load.
func wantEqualShares(t *testing.T, p *Pool, n int) {
	t.Helper()
	before := p.Snapshot().Endpoints
	pass(sec)
	after := p.Snapshot().Endpoints
	testsupport.Equal(t, len(after), n, "there are %d endpoints")
	for i, e := range after {
		got := e.Requests["fill"] - before[i].Requests["fill"]
		want := uint64(500 / n)
		testsupport.True(t, got >= want*9/10 && got <= want*11/10, "endpoint %s of %d got %d requests, want about %d", e.Endpoint, n, got, want)
	}
}

// An endpoint that stays keeps its operator state and its learned state. A removed endpoint that
// comes back is a new one, even if it was ejected or drained.
func TestStatesOutlastAChangeOfEndpoints(t *testing.T) {
	withEndpoints(t, 3, withWeights(1, 1, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		p.SetEndpointState(names[1], balancer.Draining)
		p.SetEndpointWeight(names[0], 5)
		serve(t, p, 60, msec, func(e string) bool { return e == names[2] })
		testsupport.MustEqual(t, stateOf(p, names[2]), "ejected", "the endpoint that fails is not ejected: %v")
		left := p.Snapshot().Endpoints[2].EjectedSeconds
		change(p, s, names[2], names[0], names[1], names[3])
		at := p.Snapshot().Endpoints
		testsupport.True(t, at[0].State == "ejected" && at[0].EjectedSeconds == left && at[0].Ejections == 1, "the ejected endpoint: %+v", at[0])
		testsupport.True(t, at[1].Weight == 5 && at[2].State == "draining" && at[3].State == "enabled", "endpoints: %+v", at)
		change(p, s, names[0], names[3])
		change(p, s, names[0], names[3], names[1], names[2])
		testsupport.True(t, stateOf(p, names[1]) == "enabled" && stateOf(p, names[2]) == "enabled", "endpoints that were removed and came back are %s and %s", stateOf(p, names[1]), stateOf(p, names[2]))
		change(p, s, names[1])
		p.SetEndpointState(names[1], balancer.Disabled)
		testsupport.True(t, p.Refusing(), "the pool takes requests, and its only endpoint is disabled")
		change(p, s, names[1], names[0])
		testsupport.True(t, !p.Refusing() && stateOf(p, names[1]) == "disabled", "the disabled endpoint is %s", stateOf(p, names[1]))
		served := serve(t, p, 10, msec, nil)
		testsupport.True(t, served[names[0]] == 10, "shares %v, want all at the enabled endpoint", served)
	})
}

// The only endpoint gets the requests although it is ejected, and its ejection ends.
func TestEjectedEndpointThatIsLeftAloneServes(t *testing.T) {
	withEndpoints(t, 2, withWeights(1, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		serve(t, p, 20, msec, func(e string) bool { return e == names[1] })
		change(p, s, names[1])
		testsupport.Equal(t, stateOf(p, names[1]), "enabled", "its state is %s")
		served := serve(t, p, 10, msec, nil)
		testsupport.True(t, served[names[1]] == 10, "shares %v", served)
	})
}

// Requests on a removed endpoint complete as usual. A dial to it that is under way brings a
// connection that closes unused.
func TestRemovedEndpointDrains(t *testing.T) {
	withEndpoints(t, 2, withWeights(1, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			if c.n >= 4 {
				return dialResult{after: 200 * msec}
			}
			return dialResult{after: msec}
		})
		all := acquireAll(t, p, 4)
		late := []*request{ask(t, p, sec), ask(t, p, sec)} // a dial to each endpoint
		pass(msec)
		change(p, s, names[0])
		pass(500 * msec) // the dial to the removed endpoint, and another dial
		for _, r := range late {
			testsupport.MustTrue(t, r.ended() && r.err == nil, "a request that waited: ended %v, %v", r.ended(), r.err)
			testsupport.Equal(t, r.ex.Endpoint, names[0], "a request went to the removed endpoint: %v")
		}
		for _, r := range all {
			testsupport.Equal(t, r.conn().reason, exchange.NotClosed, "the connection of a request closed: %v")
			finish(r, true) // the result of a removed endpoint changes nothing
		}
		useAll(late)
		pass(sec)
		testsupport.Equal(t, len(s.openTo(names[1])), 0, "%d connections to the removed endpoint")
		for _, e := range p.Snapshot().Endpoints {
			testsupport.True(t, e.Endpoint == names[0] && e.State == "enabled", "endpoint %s is %s", e.Endpoint, e.State)
		}
	})
}

// A look-up that began before the removal of an endpoint does not bring the endpoint back.
func TestLateLookupDoesNotBringAnEndpointBack(t *testing.T) {
	withEndpoints(t, 2, withWeights(1, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		serve(t, p, 10, msec, nil)
		old := s.addrs
		change(p, s, names[0])
		s.locked(func() { s.addrs = old })
		time.Sleep(10 * time.Second) // the janitor reads the look-up's result
		for range 3 {
			acquire(t, p)
		}
		testsupport.Equal(t, len(s.openTo(names[1])), 0, "%d connections to the removed endpoint")
	})
}
