package pool

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// violate makes exchanges fail with e.
func (s *fakeSSP) violate(e *exchange.Error, closes bool) {
	s.do = func(c *fakeConn, _ *exchange.Exchange) error {
		if c.protocol != exchange.HTTP2 {
			return nil
		}
		if closes {
			c.closeItself(exchange.ClosedError)
		}
		return e
	}
}

// demote makes requests to an SSP that refuses HTTP/2 until the pool is demoted: after three refusals, which for
// the first demotion must last for two seconds, one request is tried over HTTP/1.
func demote(t *testing.T, p *Pool) {
	t.Helper()
	acquire(t, p).do()
	if p.Snapshot().Demotions == 0 {
		pass(2 * sec)
	}
	for range 2 {
		r := acquire(t, p)
		testsupport.MustTrue(t, r.conn().protocol == exchange.HTTP2 && r.do() != nil, "no violation on %v", r.conn().protocol)
	}
	testsupport.MustTrue(t, !p.Snapshot().Demoted, "demoted before HTTP/1 was tried")
	pass(20 * msec)
	r := acquire(t, p)
	testsupport.MustEqual(t, r.conn().protocol, exchange.HTTP1, "the request after three violations uses %v")
	testsupport.NoError(t, r.do())
	testsupport.MustTrue(t, p.Snapshot().Demoted, "not demoted although HTTP/1 works")
}

func TestSSPThatRefusesHTTP2IsDemoted(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(false)
		s.violate(&exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.NotProcessed, RefusesHTTP2: true}, false)
		demote(t, p)
		snap := p.Snapshot()
		testsupport.MustTrue(t, snap.Demoted && snap.Demotions == 1 && snap.Protocol == exchange.HTTP1, "the pool was not demoted: %+v", snap)
		r := ask(t, p, sec)
		pass(10 * msec)
		r.wantConn(1, 0)
		testsupport.Equal(t, r.conn().protocol, exchange.HTTP1, "the next connection is not HTTP/1: %v")
		testsupport.NoError(t, r.do())
		testsupport.Equal(t, s.conn(0).CloseReason(), exchange.ClosedError, "the HTTP/2 connection was closed for %q, want error")
	})
}

func TestRepeatedHTTP2ViolationsDemoteTheSSP(t *testing.T) {
	for name, closes := range map[string]bool{"closing the connection": true, "on one connection": false} {
		runInBubble(t, name, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.negotiate(false)
			s.violate(&exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.MaybeProcessed, Demote: true}, closes)
			demote(t, p)
		})
	}
}

// A demotion needs its violations within violationWindow, and after the demotion before.
func TestRareViolationsDemoteNoSSP(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.IdleTimeout = sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(false)
		s.violate(&exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.MaybeProcessed, Demote: true}, true)
		for i := range 3 * maxViolations {
			acquire(t, p).do()
			pass(violationWindow/2 + sec)
			testsupport.MustTrue(t, !p.Snapshot().Demoted, "demoted after %d violations, of which two are within %v", i+1, violationWindow)
		}
		pass(violationWindow)
		demote(t, p)
		pass(demotedFor + sec)
		for range maxViolations - 1 {
			r := acquire(t, p)
			testsupport.MustTrue(t, r.conn().protocol == exchange.HTTP2 && r.do() != nil, "no violation after the demotion")
			synctest.Wait()
		}
		testsupport.Equal(t, p.Snapshot().Demotions, 1, "%d demotions: the last two violations are too few")
	})
}

func TestViolationThatFailsAllExchangesCountsOnce(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Demote: true}, true)
		for range 2 {
			all := askAll(t, p, 40, sec)
			pass(20 * msec)
			doAll(all)
			pass(0)
		}
		testsupport.True(t, !p.Snapshot().Demoted, "two connections with violations demoted the SSP, want three")
	})
}

func TestDialThatFailsBecauseOfHTTP2IsRepeatedWithoutIt(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			if c.offer {
				return dialResult{after: 10 * msec, err: &exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent, Demote: true}}
			}
			return dialResult{after: 10 * msec}
		})
		r := ask(t, p, sec)
		pass(sec)
		r.wantConn(0, 20*msec)
		r.do()
		if snap := p.Snapshot(); snap.Demotions != 1 || failedDials(p, "tls") != 1 {
			t.Errorf("%d demotions and %d failed dials, want 1 and 1", snap.Demotions, failedDials(p, "tls"))
		}
	})
}

// The SSP accepts HTTP/2, and closes the connection before the first request.
func TestSSPThatClosesHTTP2ConnectionsAtOnceIsDemoted(t *testing.T) {
	for name, beforeDialReturns := range map[string]bool{"before its first use": true, "while it is idle": false} {
		runInBubble(t, name, func(o *Options) { auto(o); o.MinIdle = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.set(func(c dialCall) dialResult {
				switch {
				case !c.offer:
					return dialResult{after: 10 * msec}
				case beforeDialReturns:
					return dialResult{after: 10 * msec, protocol: exchange.HTTP2, closed: exchange.ClosedGoaway}
				default:
					return dialResult{after: 10 * msec, protocol: exchange.HTTP2}
				}
			})
			for range 500 {
				for _, c := range s.openConns() {
					if c.protocol == exchange.HTTP2 {
						c.goAway(exchange.ClosedGoaway)
					}
				}
				pass(20 * msec)
			}
			snap := p.Snapshot()
			testsupport.True(t, snap.Demotions == 1 && snap.Idle[exchange.HTTP1] == 1, "%d demotions, %d HTTP/1 connections; want 1 and 1", snap.Demotions, snap.Idle[exchange.HTTP1])
			acquire(t, p).do()
		})
	}
}

func TestHTTP2IsOfferedAgainAfterADemotionThatDoubles(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.IdleTimeout = sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(false)
		s.violate(&exchange.Error{Outcome: exchange.BadResponse, RefusesHTTP2: true}, false)
		cool := demotedFor
		for range 4 {
			demote(t, p)
			pass(cool - 2*sec)
			acquire(t, p).do()
			testsupport.MustTrue(t, !s.dials[len(s.dials)-1].offer, "HTTP/2 was offered %v after the start of a demotion of %v", cool-2*sec, cool)
			pass(3 * sec)
			cool *= 2
		}
		s.locked(func() { s.do = nil }) // the SSP is repaired
		r := acquire(t, p)
		testsupport.Equal(t, r.conn().protocol, exchange.HTTP2, "HTTP/2 was not offered again: %v")
		testsupport.NoError(t, r.do())
	})
}

func TestHTTP2ConnectionDialledBeforeTheDemotionIsNotUsed(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			if c.offer {
				return dialResult{after: 10 * msec, protocol: exchange.HTTP2, places: 1}
			}
			return dialResult{after: 50 * msec}
		})
		first := acquire(t, p) // it starts another dial, which offers HTTP/2 too
		pass(5 * msec)
		demoteNow(p)
		first.do()
		second := ask(t, p, sec)
		pass(sec)
		testsupport.True(t, second.err == nil && second.conn().protocol == exchange.HTTP1, "the second request got %v on %v, want HTTP/1", second.err, second.conn().protocol)
		second.do()
		testsupport.Equal(t, s.openCount(), 1, "%d connections are open, want only that of HTTP/1")
		testsupport.Equal(t, p.Snapshot().Protocol, exchange.HTTP1, "the pool uses %v")
	})
}

func TestConfiguredHTTP2IsNeverDemoted(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol = exchange.HTTP2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&exchange.Error{Outcome: exchange.BadResponse, RefusesHTTP2: true}, false)
		acquire(t, p).do()
		testsupport.True(t, !p.Snapshot().Demoted, "demoted")
	})
}

// negotiate makes dials that offer HTTP/2 negotiate it. If only is true, other dials fail, since the
// SSP speaks nothing else.
func (s *fakeSSP) negotiate(only bool) {
	s.set(func(c dialCall) dialResult {
		switch {
		case c.offer:
			return dialResult{after: 10 * msec, protocol: exchange.HTTP2}
		case only:
			return dialResult{after: 10 * msec, err: &exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent, Err: exchange.ErrALPN}}
		default:
			return dialResult{after: 10 * msec}
		}
	})
}

// sendFor sends a request of a client, which violates HTTP/2 if bad is true.
func sendFor(t *testing.T, s *fakeSSP, p *Pool, client rates.Group, bad bool) (exchange.Protocol, error) {
	s.locked(func() { s.do = nil })
	if bad {
		s.violate(&exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Demote: true}, false)
	}
	ex := exchange.AcquireExchange()
	ex.Deadline, ex.Client = time.Now().Add(sec), client
	r := askFor(t, p, ex)
	pass(20 * msec)
	testsupport.NoError(t, r.err)
	return r.conn().protocol, r.do()
}

// Requests that the SSP resets with PROTOCOL_ERROR because of what is in them, three between two others.
// All of a sidecar's requests are from one address.
func TestViolationsOfSomeRequestsDemoteNoSSPThatWorks(t *testing.T) {
	for name, bad := range map[string]rates.Group{"of one client of two": 1, "of the only client": 0} {
		runInBubble(t, name, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.negotiate(false)
			for range 60 {
				for range 3 {
					sendFor(t, s, p, bad, true)
				}
				protocol, err := sendFor(t, s, p, 0, false)
				testsupport.MustTrue(t, protocol == exchange.HTTP2 && err == nil, "another request uses %v: %v", protocol, err)
			}
			testsupport.Equal(t, p.Snapshot().Demotions, 0, "%d demotions")
			testsupport.Equal(t, s.dialCount(), 1, "%d dials, want 1")
		})
	}
}

// HTTP/2 has worked for two clients, and one of them sends only requests that violate it.
func TestViolationsOfOneClientOfTwoDemoteNoSSP(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(false)
		sendFor(t, s, p, 0, false)
		sendFor(t, s, p, 1, false)
		for range 250 { // 5 s
			sendFor(t, s, p, 1, true)
		}
		testsupport.Equal(t, s.dialCount(), 1, "%d dials: HTTP/1 was tried")
	})
}

func TestSSPWhoseHTTP2BreaksIsDemotedAfterTwoSeconds(t *testing.T) {
	for name, clients := range map[string]rates.Group{"for one client": 1, "for ten clients": 10} {
		runInBubble(t, name, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.negotiate(false)
			for c := range clients {
				sendFor(t, s, p, c, false)
			}
			broken := time.Now()
			for n := rates.Group(0); !p.Snapshot().Demoted; n++ {
				sendFor(t, s, p, n%clients, true)
				testsupport.MustTrue(t, time.Since(broken) < 3*sec, "not demoted after %v", time.Since(broken))
			}
			testsupport.AtLeast(t, time.Since(broken), 2*sec, "demoted after %v")
		})
	}
}

// The SSP speaks only HTTP/2: no request may be lost to a demotion.
func TestSSPThatSpeaksOnlyHTTP2IsNotDemoted(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(true)
		for s.dialCount() < 2 { // until HTTP/1 is tried
			sendFor(t, s, p, 0, true)
		}
		for range 348 {
			protocol, err := sendFor(t, s, p, 0, false)
			testsupport.MustTrue(t, protocol == exchange.HTTP2 && err == nil, "a request uses %v: %v", protocol, err)
		}
		testsupport.Equal(t, p.Snapshot().Demotions, 0, "%d demotions")
		testsupport.AtMost(t, s.dialCount(), 2, "%d dials, want one over HTTP/2 and one trial")
	})
}

// The SSP accepts TLS without HTTP/2, and closes the connection: at once, or on the first request.
func TestSSPThatClosesHTTP1ConnectionsIsNotDemoted(t *testing.T) {
	for name, atOnce := range map[string]bool{"at once": true, "on the first request": false} {
		runInBubble(t, name, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.set(func(c dialCall) dialResult {
				switch {
				case c.offer:
					return dialResult{after: 10 * msec, protocol: exchange.HTTP2}
				case atOnce:
					return dialResult{after: 10 * msec, closed: exchange.ClosedByPeer}
				default:
					return dialResult{after: 10 * msec}
				}
			})
			for s.dialCount() < 2 { // until HTTP/1 is tried
				sendFor(t, s, p, 0, true)
			}
			lost := 0
			for range 348 {
				ex := exchange.AcquireExchange()
				ex.Deadline = time.Now().Add(sec)
				s.locked(func() {
					s.do = func(c *fakeConn, ex *exchange.Exchange) error {
						if c.protocol == exchange.HTTP1 {
							return loseRace(c, ex)
						}
						return nil
					}
				})
				r := askFor(t, p, ex)
				pass(20 * msec)
				testsupport.NoError(t, r.err)
				if r.do() != nil {
					lost++
				}
			}
			want := 1
			if atOnce {
				want = 0
			}
			testsupport.Equal(t, lost, want, "%d of 348 requests were lost")
			testsupport.Equal(t, p.Snapshot().Demotions, 0, "%d demotions")
		})
	}
}

// During a demotion the SSP no longer speaks HTTP/1.
func TestDemotionEndsWhenTheSSPSpeaksOnlyHTTP2(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.MaxIdle = 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(true)
		demoteNow(p)
		protocol, err := sendFor(t, s, p, 0, false)
		testsupport.True(t, protocol == exchange.HTTP2 && err == nil, "the request uses %v: %v", protocol, err)
	})
}

// A request that the SSP wants over HTTP/1 gets an HTTP/1 connection beside HTTP/2, and the others stay.
func TestARequestForHTTP1GetsAConnectionBesideHTTP2(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.MaxIdle = 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(false)
		acquire(t, p).do()
		for range 5 {
			ex := exchange.AcquireExchange()
			ex.Deadline, ex.OverHTTP1 = time.Now().Add(sec), true
			r := askFor(t, p, ex)
			pass(20 * msec)
			testsupport.NoError(t, r.err)
			testsupport.Equal(t, r.conn().protocol, exchange.HTTP1, "it uses %v")
			testsupport.True(t, ex.Peer != netip.AddrPort{}, "its peer is unknown")
			testsupport.NoError(t, r.do())
			other := acquire(t, p)
			testsupport.Equal(t, other.conn().protocol, exchange.HTTP2, "another request uses %v")
			other.do()
		}
		testsupport.Equal(t, p.Snapshot().Demotions, 0, "%d demotions")
	})
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.negotiate(true)
		acquire(t, p).do()
		for range 5 {
			ex := exchange.AcquireExchange()
			ex.Deadline, ex.OverHTTP1 = time.Now().Add(sec), true
			r := askFor(t, p, ex)
			pass(20 * msec)
			testsupport.True(t, r.err == exchange.ErrOnlyHTTP2, "the error is %v", r.err)
		}
		testsupport.Equal(t, s.dialCount(), 2, "%d dials, want one over HTTP/2 and one without")
	})
}
