package pool

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// addressesOfA returns n addresses of the endpoint a.
func addressesOfA(n int) []exchange.Address {
	all := addresses(n)
	for i := range all {
		all[i].Name = names[0]
	}
	return all
}

// When DNS changes, new addresses get requests and connections to removed addresses close. This
// takes seconds, and no request fails.
func TestConnectionsFollowDNS(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		withEndpoints(t, 1, func(o *Options) { withWeights(1)(o); o.Protocol = protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			all := addressesOfA(3)
			s.addrs = all[:2]
			s.always(dialResult{after: 5 * msec, protocol: protocol})
			stop := loaded(t, p, 2*msec) // two or three requests at a time, so that one connection is not enough
			pass(sec)
			s.locked(func() { s.addrs = all[1:] }) // the first goes, the third is new
			pass(lookPeriod + renewal + 2*sec)
			seen := map[exchange.Address]int{}
			s.mu.Lock()
			for _, c := range s.conns {
				if c.reason == exchange.NotClosed {
					seen[c.addr]++
				} else if c.addr == all[0] {
					testsupport.Equal(t, c.reason, exchange.ClosedDNS, "%[2]v: closed as %[1]v", protocol)
				}
			}
			served := 0
			for _, c := range s.conns {
				if c.addr == all[2] {
					served += c.done
				}
			}
			s.mu.Unlock()
			testsupport.Equal(t, seen[all[0]], 0, "%[2]v: %[1]d connections to the removed address", protocol)
			testsupport.True(t, seen[all[2]] != 0 && served >= 10, "%v: the new address has %d connections and got %d requests", protocol, seen[all[2]], served)
			testsupport.Equal(t, stop(), 0, "%[2]v: %[1]d requests failed", protocol)
			s.locked(func() { s.lookup = errRefused }) // DNS fails: the last good result stays
			pass(10 * time.Second)
			testsupport.True(t, s.openCount() != 0, "%v: a failed look-up closed all connections", protocol)
		})
	}
}

// A dial finds the change of DNS before the janitor does. Connections to the removed address close all
// the same.
func TestConnectionsFollowDNSThatADialHasSeenFirst(t *testing.T) {
	withEndpoints(t, 1, withWeights(1), func(t *testing.T, s *fakeSSP, p *Pool) {
		all := addressesOfA(2)
		s.addrs = all[:1]
		s.always(dialResult{after: 5 * msec})
		held := askAll(t, p, 3, sec)
		pass(lookPeriod + sec)
		s.locked(func() { s.addrs = all[1:] })
		r := ask(t, p, sec) // all connections are in use
		pass(5 * msec)
		doAll(append(held, r))
		pass(renewal + 2*sec)
		for _, c := range s.openTo(names[0]) {
			testsupport.Equal(t, c.addr, all[1], "a connection to %v is open")
		}
		testsupport.Equal(t, p.closedFor(exchange.ClosedDNS), 3, "%d connections closed because of DNS")
	})
}

// Each new address gets a connection, and known addresses get none. Over HTTP/2 the connections stay
// within max_http2_conns.
func TestNewAddressesGetConnections(t *testing.T) {
	for _, c := range []struct {
		name     string
		offered  exchange.Protocol // the protocol setting
		protocol exchange.Protocol
		want     int // connections to new addresses
	}{
		{"HTTP/1", exchange.HTTP1, exchange.HTTP1, 4},
		{"HTTP/2", exchange.HTTP2, exchange.HTTP2, 2},
		{"ALPN", exchange.Unknown, exchange.HTTP2, 2},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			s := endpointsSSP(t, 1)
			all := addressesOfA(8)
			s.addrs = []exchange.Address{all[0], all[2], all[4], all[6]}
			s.set(func(d dialCall) dialResult {
				if !d.offer {
					return dialResult{after: msec}
				}
				return dialResult{after: msec, protocol: c.protocol}
			})
			p := start(t, s, func(o *Options) { withWeights(1)(o); o.Protocol, o.MaxHTTP2Conns = c.offered, 3 })
			serve(t, p, 1, msec, nil)
			s.locked(func() { s.addrs = all })
			pass(2 * lookPeriod)
			seen := map[exchange.Address]int{}
			for _, conn := range s.openTo(names[0])[1:] {
				seen[conn.addr]++
				testsupport.Equal(t, conn.protocol, c.protocol, "a connection uses %v")
			}
			testsupport.True(t, len(seen) == c.want && s.openCount() == c.want+1, "%d connections, to %d new addresses: %v; want one to each of %d", s.openCount()-1, len(seen), seen, c.want)
			for _, i := range []int{0, 2, 4, 6} {
				testsupport.True(t, seen[all[i]] <= 0, "another connection to %v, which is not new", all[i])
			}
		})
	}
}
