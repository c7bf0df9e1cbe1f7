package pool

import (
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// auto configures a pool that negotiates the protocol by ALPN.
func auto(o *Options) {
	o.Protocol = exchange.Unknown
	o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxPending = 256, 256, 4, 512
}

// speakHTTP2 makes dials that offer HTTP/2 negotiate it, and all other dials HTTP/1.
func (s *fakeSSP) speakHTTP2() {
	s.set(func(c dialCall) dialResult {
		if c.offer {
			return dialResult{after: 10 * msec, protocol: exchange.HTTP2}
		}
		return dialResult{after: 10 * msec}
	})
}

func TestOneProbeWhileTheProtocolIsUnknown(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		runInBubble(t, protocol.String(), auto, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol})
			all := askAll(t, p, 150, sec)
			pass(9 * msec)
			testsupport.Equal(t, s.dialCount(), 1, "%d dials while the protocol is unknown")
			snap := p.Snapshot()
			testsupport.True(t, snap.Pending == 0 && snap.WaitingForDials == 150, "%d wait for a place and %d for dials, want 0 and 150", snap.Pending, snap.WaitingForDials)
			pass(2 * msec)
			want := 1 + 16 // max_dials
			if protocol == exchange.HTTP2 {
				want = 2 // 150 streams, 100 per connection
			}
			testsupport.Equal(t, s.dialCount(), want, "%d dials after the probe")
			pass(500 * msec)
			doAll(all)
		})
	}
}

func TestFailedProbeIsFollowedByAnother(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.addrs = addresses(3)
		s.set(func(c dialCall) dialResult {
			if c.n < 2 {
				return dialResult{after: 5 * msec, err: errRefused}
			}
			return dialResult{after: 5 * msec, protocol: exchange.HTTP2}
		})
		a, b := ask(t, p, sec), ask(t, p, sec)
		pass(20 * msec)
		a.wantConn(0, 15*msec)
		b.wantConn(0, 15*msec)
		testsupport.Equal(t, s.maxDials, 1, "%d dials at once, want one probe at a time")
	})
}

func TestConnectionsAreUsedByTheirNegotiatedProtocol(t *testing.T) {
	inBubble(t, func(o *Options) {
		auto(o)
		o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns = 10, 10, 2
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		// A balancer with backends of both protocols.
		s.set(func(c dialCall) dialResult {
			if c.offer && c.n != 1 {
				return dialResult{after: 10 * msec, protocol: exchange.HTTP2, places: 3}
			}
			return dialResult{after: 10 * msec}
		})
		all := askAll(t, p, 14, sec) // 2×3 streams and 8 connections
		pass(300 * msec)
		snap := p.Snapshot()
		if snap.Active[exchange.HTTP2] != 2 || snap.Active[exchange.HTTP1] != 8 {
			t.Errorf("%d HTTP/2 and %d HTTP/1 connections, want 2 and 8", snap.Active[exchange.HTTP2], snap.Active[exchange.HTTP1])
		}
		testsupport.True(t, snap.PlacesInUse == 14 && snap.PlacesLimit == 14, "%d of %d places in use, want 14 of 14", snap.PlacesInUse, snap.PlacesLimit)
		doAll(all)
		testsupport.Equal(t, len(s.conns), 10, "%d connections were opened: every handshake gives a used connection")
	})
}

func TestHTTP2IsOfferedOnlyIfAllowed(t *testing.T) {
	for protocol, want := range map[exchange.Protocol]bool{
		exchange.Unknown: true, exchange.HTTP2: true, exchange.HTTP1: false, exchange.HTTP1Pipelined: false,
	} {
		inBubble(t, func(o *Options) { o.Protocol = protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{protocol: protocol})
			acquire(t, p).do()
			testsupport.Equal(t, s.dials[0].offer, want, "protocol %[2]v: HTTP/2 offered: %[1]v", protocol)
		})
	}
}
