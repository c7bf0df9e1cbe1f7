package pool

import (
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// auto configures a pool that negotiates the protocol by ALPN.
func auto(o *Options) {
	o.Protocol = upstream.Unknown
	o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxPending = 256, 256, 4, 512
}

// speakHTTP2 makes dials that offer HTTP/2 negotiate it, and all other dials HTTP/1.
func (s *fakeSSP) speakHTTP2() {
	s.set(func(c dialCall) dialResult {
		if c.offer {
			return dialResult{after: 10 * msec, protocol: upstream.HTTP2}
		}
		return dialResult{after: 10 * msec}
	})
}

func TestOneProbeWhileTheProtocolIsUnknown(t *testing.T) {
	for _, protocol := range []upstream.Protocol{upstream.HTTP1, upstream.HTTP2} {
		t.Run(protocol.String(), func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				s := newFakeSSP(t)
				s.set(func(dialCall) dialResult { return dialResult{after: 10 * msec, protocol: protocol} })
				p := start(t, s, auto)
				var all []*request
				for range 150 {
					all = append(all, ask(t, p, sec))
				}
				pass(9 * msec)
				if n := s.dialCount(); n != 1 {
					t.Errorf("%d dials while the protocol is unknown, want 1", n)
				}
				if snap := p.Snapshot(); snap.Pending != 0 || snap.WaitingForDials != 150 {
					t.Errorf("%d wait for a place and %d for dials, want 0 and 150", snap.Pending, snap.WaitingForDials)
				}
				pass(2 * msec)
				want := 1 + 16 // max_dials
				if protocol == upstream.HTTP2 {
					want = 2 // 150 streams, 100 per connection
				}
				if n := s.dialCount(); n != want {
					t.Errorf("%d dials after the probe, want %d", n, want)
				}
				pass(500 * msec)
				for _, r := range all {
					if !r.ended() || r.err != nil {
						t.Fatalf("a request: ended %v, %v", r.ended(), r.err)
					}
					r.do()
				}
			})
		})
	}
}

func TestFailedProbeIsFollowedByAnother(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.addrs = addresses(3)
		s.set(func(c dialCall) dialResult {
			if c.n < 2 {
				return dialResult{after: 5 * msec, err: errRefused}
			}
			return dialResult{after: 5 * msec, protocol: upstream.HTTP2}
		})
		p := start(t, s, auto)
		a, b := ask(t, p, sec), ask(t, p, sec)
		pass(20 * msec)
		a.wantConn(0, 15*msec)
		b.wantConn(0, 15*msec)
		if n := s.maxDials; n != 1 {
			t.Errorf("%d dials at once, want one probe at a time", n)
		}
		a.do()
		b.do()
	})
}

func TestFailedProbeToTheOnlyAddressFailsAllWaiters(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.refuse(5 * msec)
		p := start(t, s, auto)
		var all []*request
		for range 600 {
			all = append(all, ask(t, p, sec))
		}
		pass(10 * msec)
		for _, r := range all {
			r.wantErr(upstream.ConnectFailed, 10*msec)
		}
		if n := s.dialCount(); n != 2 {
			t.Errorf("%d dials, want 2, one after the other", n)
		}
	})
}

func TestSixHundredColdRequestsOpenMaxHTTP2ConnsAndAreAllServed(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.speakHTTP2()
		s.do = func(*fakeConn, *upstream.Exchange) error { pass20(); return nil }
		p := start(t, s, auto)
		failed := make(chan error, 600)
		for range 600 {
			r := ask(t, p, sec)
			go func() {
				for !r.ended() {
					pass5()
				}
				if r.err != nil {
					failed <- r.err
					return
				}
				failed <- r.do()
			}()
		}
		for range 600 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		if n := s.dialCount(); n != 4 {
			t.Errorf("%d dials, want max_http2_conns, 4", n)
		}
	})
}

func TestConnectionsAreUsedByTheirNegotiatedProtocol(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		// A balancer with backends of both protocols.
		s.set(func(c dialCall) dialResult {
			if c.offer && c.n != 1 {
				return dialResult{after: 10 * msec, protocol: upstream.HTTP2, places: 3}
			}
			return dialResult{after: 10 * msec}
		})
		p := start(t, s, func(o *Options) {
			auto(o)
			o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns = 10, 10, 2
		})
		var all []*request
		for range 14 { // 2×3 streams and 8 connections
			all = append(all, ask(t, p, sec))
		}
		pass(300 * msec)
		for i, r := range all {
			if !r.ended() || r.err != nil {
				t.Fatalf("request %d: ended %v, %v", i, r.ended(), r.err)
			}
		}
		snap := p.Snapshot()
		if snap.Active[upstream.HTTP2] != 2 || snap.Active[upstream.HTTP1] != 8 {
			t.Errorf("%d HTTP/2 and %d HTTP/1 connections, want 2 and 8", snap.Active[upstream.HTTP2], snap.Active[upstream.HTTP1])
		}
		if snap.PlacesInUse != 14 || snap.PlacesLimit != 14 {
			t.Errorf("%d of %d places in use, want 14 of 14", snap.PlacesInUse, snap.PlacesLimit)
		}
		for _, r := range all {
			r.do()
		}
		if n := len(s.conns); n != 10 {
			t.Errorf("%d connections were opened, want 10: every handshake gives a used connection", n)
		}
	})
}

func TestSSPOfMixedProtocolsNeverExceedsMaxHTTP2Conns(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		// HTTP/1 for the probe, HTTP/2 for each later dial that offers it.
		s.set(func(c dialCall) dialResult {
			if c.offer && c.n > 0 {
				return dialResult{after: 10 * msec, protocol: upstream.HTTP2, places: 2}
			}
			return dialResult{after: 10 * msec}
		})
		p := start(t, s, func(o *Options) {
			auto(o)
			o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns = 32, 32, 3
		})
		var all []*request
		for range 30 {
			all = append(all, ask(t, p, sec))
		}
		pass(300 * msec)
		snap := p.Snapshot()
		if n := snap.Active[upstream.HTTP2] + snap.Idle[upstream.HTTP2]; n != 3 {
			t.Errorf("%d HTTP/2 connections, want max_http2_conns, 3", n)
		}
		for _, r := range all {
			if !r.ended() || r.err != nil {
				t.Fatalf("a request: ended %v, %v", r.ended(), r.err)
			}
			r.do()
		}
	})
}

func TestHTTP2IsOfferedOnlyIfAllowed(t *testing.T) {
	for protocol, want := range map[upstream.Protocol]bool{
		upstream.Unknown: true, upstream.HTTP2: true, upstream.HTTP1: false, upstream.HTTP1Pipelined: false,
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			s := newFakeSSP(t)
			s.set(func(dialCall) dialResult { return dialResult{protocol: protocol} })
			p := start(t, s, func(o *Options) { o.Protocol = protocol })
			acquire(t, p).do()
			if got := s.dials[0].offer; got != want {
				t.Errorf("protocol %v: HTTP/2 offered: %v, want %v", protocol, got, want)
			}
		})
	}
}
