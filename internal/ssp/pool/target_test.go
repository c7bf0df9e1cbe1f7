package pool

import (
	"net/netip"
	"slices"
	"testing"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var errSilent = &exchange.Error{Outcome: exchange.ConnectFailed, Err: timeoutError{}}

// dualStack returns the addresses of one endpoint, alternating between both families.
func dualStack(each int) []exchange.Address {
	var all []exchange.Address
	for i := range each {
		all = append(all, address4(i), address6(i))
	}
	return all
}

func address4(i int) exchange.Address {
	return exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test", Authority: "ssp.test"}, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), 80)}
}

func address6(i int) exchange.Address {
	return exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test", Authority: "ssp.test"}, AddrPort: netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)}), 80)}
}

// A dial alternates between both families. It tries at most four addresses, and none whose last
// dial failed.
func TestDialTriesBothFamiliesByTurns(t *testing.T) {
	for _, c := range []struct {
		name   string
		addrs  []exchange.Address
		at     int
		failed []exchange.Address
		want   []exchange.Address
	}{
		{"one address", []exchange.Address{address4(0)}, 0, nil, nil},
		{"one of each", dualStack(1), 1, nil, []exchange.Address{address4(0)}},
		{"three of each", dualStack(3), 0, nil, []exchange.Address{address6(0), address4(1), address6(1)}},
		{"from the middle", dualStack(2), 3, nil, []exchange.Address{address4(0), address6(0), address4(1)}},
		{"one family", []exchange.Address{address4(0), address4(1), address4(2)}, 1, nil, []exchange.Address{address4(2), address4(0)}},
		{"more of one family", []exchange.Address{address6(0), address6(1), address6(2), address4(0)}, 0, nil, []exchange.Address{address4(0), address6(1), address6(2)}},
		{"one failed", dualStack(2), 0, []exchange.Address{address6(0)}, []exchange.Address{address6(1), address4(1)}},
		{"all other ones failed", dualStack(1), 0, []exchange.Address{address6(0)}, nil},
	} {
		g := governor{states: make(map[exchange.Address]*addressState)}
		for _, a := range c.failed {
			g.stateOf(a).failures = 1
		}
		got := g.othersOf(&endpoint{addrs: c.addrs}, c.at)
		testsupport.True(t, slices.Equal(got, c.want), "%s: %v, want %v", c.name, got, c.want)
	}
}

// blackHole makes dials to IPv6 addresses lose to others, or fail.
func (s *fakeSSP) blackHole() {
	s.set(func(c dialCall) dialResult {
		if c.addr.AddrPort.Addr().Is4() {
			return dialResult{after: 5 * msec}
		}
		for i, o := range c.others {
			if o.AddrPort.Addr().Is4() {
				r := dialResult{after: 125 * msec, to: i + 1, lost: make([]error, len(c.others)+1)}
				r.lost[0] = errSilent
				return r
			}
		}
		return dialResult{after: 250 * msec, err: errSilent}
	})
}

// An address that loses is no failure of its endpoint.
func TestAddressThatLosesEjectsNothing(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.MaxRequests = 1
		o.Endpoints = []balancer.Options{{Name: "a:80", Weight: 1}, {Name: "b:80", Weight: 1, Priority: 1}}
		o.Ejection.Consecutive = 1
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = dualStack(1)
		s.blackHole()
		for i := range 2 {
			askAfterLearning(t, p, i).do()
		}
		e := p.Snapshot().Endpoints[0]
		testsupport.True(t, e.DialErrors == 1 && e.Ejections == 0, "%d dial errors, %d ejections, want 1 and 0", e.DialErrors, e.Ejections)
	})
}

// An address that lost to another one is on trial: the other addresses get the dials. Each failed
// attempt counts once. The connection belongs to the address that was reached.
func TestAddressThatLosesIsOnTrial(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxRequests = 8, 8, 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = dualStack(2)
		dead := func(a exchange.Address) bool { return a.AddrPort.Addr().Is6() }
		s.blackHole()
		for i := range 100 {
			pass(90 * msec)
			r := askAfterLearning(t, p, i)
			testsupport.MustTrue(t, !dead(r.conn().addr) && r.ex.Peer == r.conn().addr.AddrPort, "request %d: the connection to %v is recorded as one to %v", i, r.conn().addr, r.ex.Peer)
			r.do()
		}
		pass(sec) // until the last dial ends
		tries := 0
		for _, c := range s.dials {
			if dead(c.addr) {
				tries++
			}
			testsupport.MustTrue(t, !slices.ContainsFunc(c.others, dead) || len(s.dials) <= 10 || c.n <= 10, "dial %d tries an address that lost before: %v", c.n, c.others)
		}
		testsupport.True(t, tries >= 4 && tries <= 24, "%d dials to the dead addresses, want about one every 5 s for each", tries)
		n := failedDials(p, "timeout")
		testsupport.True(t, n == tries, "%d timeouts are counted, want %d: one for each attempt that lost", n, tries)
	})
}
