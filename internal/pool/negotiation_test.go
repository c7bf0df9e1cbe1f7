package pool

import (
	"testing"
	"testing/synctest"

	"adbuffer/internal/upstream"
)

// auto sets up a pool that learns the protocol by ALPN.
func auto(o *Options) {
	o.Protocol = upstream.Unknown
	o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxPending = 256, 256, 4, 512
}

// speakHTTP2 makes dials that offer HTTP/2 get it, and all other dials HTTP/1.
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
			synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
			t.Errorf("%d connections were opened, want 10: each handshake is of use", n)
		}
	})
}

func TestSSPOfMixedProtocolsNeverExceedsMaxHTTP2Conns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
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

// violate makes exchanges fail with e.
func (s *fakeSSP) violate(e *upstream.Error, closes bool) {
	s.do = func(c *fakeConn, _ *upstream.Exchange) error {
		if c.protocol != upstream.HTTP2 {
			return nil
		}
		if closes {
			c.closeItself(upstream.ClosedError)
		}
		return e
	}
}

func TestSSPThatRefusesHTTP2IsDemotedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.NotProcessed, RefusesHTTP2: true}, false)
		p := start(t, s, auto)
		if err := acquire(t, p).do(); err == nil {
			t.Fatal("no error")
		}
		if snap := p.Snapshot(); !snap.Demoted || snap.Demotions != 1 || snap.Protocol != upstream.HTTP1 {
			t.Fatalf("the pool was not demoted: %+v", snap)
		}
		r := ask(t, p, sec)
		pass(10 * msec)
		r.wantConn(1, 10*msec)
		if r.conn().protocol != upstream.HTTP1 {
			t.Error("the next connection is not HTTP/1")
		}
		if err := r.do(); err != nil {
			t.Error(err)
		}
		if got := s.conn(0).CloseReason(); got != upstream.ClosedError {
			t.Errorf("the HTTP/2 connection was closed for %q, want error", got)
		}
	})
}

func TestRepeatedHTTP2ViolationsDemoteTheSSP(t *testing.T) {
	for name, closes := range map[string]bool{"closing the connection": true, "on one connection": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSSP(t)
				s.speakHTTP2()
				s.violate(&upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.MaybeProcessed, Demote: true}, closes)
				p := start(t, s, auto)
				for i := range maxViolations {
					if p.Snapshot().Demoted {
						t.Fatalf("demoted after %d violations, want %d", i, maxViolations)
					}
					acquire(t, p).do()
					synctest.Wait()
				}
				if !p.Snapshot().Demoted {
					t.Fatalf("not demoted after %d violations", maxViolations)
				}
			})
		})
	}
}

func TestViolationThatFailsAllExchangesCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed, Demote: true}, true)
		p := start(t, s, auto)
		for range 2 {
			var all []*request
			for range 40 {
				all = append(all, ask(t, p, sec))
			}
			pass(20 * msec)
			for _, r := range all {
				r.do()
			}
			pass(0)
		}
		if p.Snapshot().Demoted {
			t.Error("two connections with violations demoted the SSP, want three")
		}
	})
}

func TestDialThatFailsBecauseOfHTTP2IsRepeatedWithoutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.set(func(c dialCall) dialResult {
			if c.offer {
				return dialResult{after: 10 * msec, err: &upstream.Error{Outcome: upstream.TLSFailed, Progress: upstream.NotSent, Demote: true}}
			}
			return dialResult{after: 10 * msec}
		})
		p := start(t, s, auto)
		r := ask(t, p, sec)
		pass(sec)
		r.wantConn(0, 20*msec)
		r.do()
		if snap := p.Snapshot(); snap.Demotions != 1 || p.stats.failed[dialTLS].Load() != 1 {
			t.Errorf("%d demotions and %d failed dials, want 1 and 1", snap.Demotions, p.stats.failed[dialTLS].Load())
		}
	})
}

// The SSP accepts HTTP/2, and closes the connection before the first request.
func TestSSPThatClosesHTTP2ConnectionsAtOnceIsDemoted(t *testing.T) {
	for name, beforeDialReturns := range map[string]bool{"before its first use": true, "while it is idle": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeSSP(t)
				s.set(func(c dialCall) dialResult {
					switch {
					case !c.offer:
						return dialResult{after: 10 * msec}
					case beforeDialReturns:
						return dialResult{after: 10 * msec, protocol: upstream.HTTP2, closed: upstream.ClosedGoaway}
					default:
						return dialResult{after: 10 * msec, protocol: upstream.HTTP2}
					}
				})
				p := start(t, s, func(o *Options) { auto(o); o.MinIdle = 1 })
				for range 1000 {
					s.mu.Lock()
					conns := s.conns
					s.mu.Unlock()
					for _, c := range conns {
						if c.protocol == upstream.HTTP2 && c.CloseReason() == upstream.NotClosed {
							c.goAway(upstream.ClosedGoaway)
						}
					}
					pass(10 * msec)
				}
				if snap := p.Snapshot(); snap.Demotions != 1 || snap.Idle[upstream.HTTP1] != 1 {
					t.Errorf("%d demotions, %d HTTP/1 connections; want 1 and 1", snap.Demotions, snap.Idle[upstream.HTTP1])
				}
				acquire(t, p).do()
			})
		})
	}
}

func TestHTTP2IsOfferedAgainAfterADemotionThatDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, RefusesHTTP2: true}, false)
		p := start(t, s, func(o *Options) { auto(o); o.IdleTimeout = sec })
		cool := demotedFor
		for range 4 {
			acquire(t, p).do()
			if !p.Snapshot().Demoted {
				t.Fatal("not demoted")
			}
			pass(cool - 2*sec)
			acquire(t, p).do()
			if s.dials[len(s.dials)-1].offer {
				t.Fatalf("HTTP/2 was offered %v after the start of a demotion of %v", cool-2*sec, cool)
			}
			pass(3 * sec)
			cool *= 2
		}
		s.mu.Lock()
		s.do = nil // the SSP is repaired
		s.mu.Unlock()
		r := acquire(t, p)
		if r.conn().protocol != upstream.HTTP2 {
			t.Error("HTTP/2 was not offered again")
		}
		if err := r.do(); err != nil {
			t.Error(err)
		}
	})
}

func TestHTTP2ConnectionDialledBeforeTheDemotionIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.set(func(c dialCall) dialResult {
			if c.offer {
				return dialResult{after: 10 * msec, protocol: upstream.HTTP2, places: 1}
			}
			return dialResult{after: 50 * msec}
		})
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, RefusesHTTP2: true}, false)
		p := start(t, s, auto)
		first := acquire(t, p) // it starts another dial, which offers HTTP/2 too
		pass(5 * msec)
		first.do()
		second := ask(t, p, sec)
		pass(sec)
		if second.err != nil || second.conn().protocol != upstream.HTTP1 {
			t.Errorf("the second request got %v on %v, want HTTP/1", second.err, second.conn().protocol)
		}
		second.do()
		if got := p.Snapshot().Protocol; got != upstream.HTTP1 {
			t.Errorf("the pool speaks %v", got)
		}
	})
}

func TestConfiguredHTTP2IsNeverDemoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, RefusesHTTP2: true}, false)
		p := start(t, s, func(o *Options) { o.Protocol = upstream.HTTP2 })
		acquire(t, p).do()
		if p.Snapshot().Demoted {
			t.Error("demoted")
		}
	})
}
