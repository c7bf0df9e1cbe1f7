package pool

import (
	"testing"
	"testing/synctest"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

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
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.NotProcessed, RefusesHTTP2: true}, false)
		testsupport.MustTrue(t, acquire(t, p).do() != nil, "no error")
		snap := p.Snapshot()
		testsupport.MustTrue(t, snap.Demoted && snap.Demotions == 1 && snap.Protocol == upstream.HTTP1, "the pool was not demoted: %+v", snap)
		r := ask(t, p, sec)
		pass(10 * msec)
		r.wantConn(1, 10*msec)
		testsupport.Equal(t, r.conn().protocol, upstream.HTTP1, "the next connection is not HTTP/1: %v")
		testsupport.NoError(t, r.do())
		testsupport.Equal(t, s.conn(0).CloseReason(), upstream.ClosedError, "the HTTP/2 connection was closed for %q, want error")
	})
}

func TestRepeatedHTTP2ViolationsDemoteTheSSP(t *testing.T) {
	for name, closes := range map[string]bool{"closing the connection": true, "on one connection": false} {
		runInBubble(t, name, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.speakHTTP2()
			s.violate(&upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.MaybeProcessed, Demote: true}, closes)
			for i := range maxViolations {
				testsupport.MustTrue(t, !p.Snapshot().Demoted, "demoted after %d violations, want %d", i, maxViolations)
				acquire(t, p).do()
				synctest.Wait()
			}
			testsupport.MustTrue(t, p.Snapshot().Demoted, "not demoted after %d violations", maxViolations)
		})
	}
}

// A demotion needs its violations within violationWindow, and after the demotion before.
func TestRareViolationsDemoteNoSSP(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.IdleTimeout = sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.MaybeProcessed, Demote: true}, true)
		for i := range 3 * maxViolations {
			acquire(t, p).do()
			pass(violationWindow/2 + sec)
			testsupport.MustTrue(t, !p.Snapshot().Demoted, "demoted after %d violations, of which two are within %v", i+1, violationWindow)
		}
		pass(violationWindow)
		for range maxViolations {
			acquire(t, p).do()
			synctest.Wait()
		}
		testsupport.MustTrue(t, p.Snapshot().Demoted, "not demoted after %d violations at once", maxViolations)
		pass(demotedFor + sec)
		for range maxViolations - 1 {
			r := acquire(t, p)
			testsupport.MustTrue(t, r.conn().protocol == upstream.HTTP2 && r.do() != nil, "no violation after the demotion")
			synctest.Wait()
		}
		testsupport.Equal(t, p.Snapshot().Demotions, 1, "%d demotions: the last two violations are too few")
	})
}

func TestViolationThatFailsAllExchangesCountsOnce(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed, Demote: true}, true)
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
				return dialResult{after: 10 * msec, err: &upstream.Error{Outcome: upstream.TLSFailed, Progress: upstream.NotSent, Demote: true}}
			}
			return dialResult{after: 10 * msec}
		})
		r := ask(t, p, sec)
		pass(sec)
		r.wantConn(0, 20*msec)
		r.do()
		if snap := p.Snapshot(); snap.Demotions != 1 || p.conns.endpoints.all[0].stats.failed[dialTLS].Load() != 1 {
			t.Errorf("%d demotions and %d failed dials, want 1 and 1", snap.Demotions, p.conns.endpoints.all[0].stats.failed[dialTLS].Load())
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
					return dialResult{after: 10 * msec, protocol: upstream.HTTP2, closed: upstream.ClosedGoaway}
				default:
					return dialResult{after: 10 * msec, protocol: upstream.HTTP2}
				}
			})
			for range 1000 {
				for _, c := range s.openConns() {
					if c.protocol == upstream.HTTP2 {
						c.goAway(upstream.ClosedGoaway)
					}
				}
				pass(10 * msec)
			}
			snap := p.Snapshot()
			testsupport.True(t, snap.Demotions == 1 && snap.Idle[upstream.HTTP1] == 1, "%d demotions, %d HTTP/1 connections; want 1 and 1", snap.Demotions, snap.Idle[upstream.HTTP1])
			acquire(t, p).do()
		})
	}
}

func TestHTTP2IsOfferedAgainAfterADemotionThatDoubles(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.IdleTimeout = sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, RefusesHTTP2: true}, false)
		cool := demotedFor
		for range 4 {
			acquire(t, p).do()
			testsupport.MustTrue(t, p.Snapshot().Demoted, "not demoted")
			pass(cool - 2*sec)
			acquire(t, p).do()
			testsupport.MustTrue(t, !s.dials[len(s.dials)-1].offer, "HTTP/2 was offered %v after the start of a demotion of %v", cool-2*sec, cool)
			pass(3 * sec)
			cool *= 2
		}
		s.locked(func() { s.do = nil }) // the SSP is repaired
		r := acquire(t, p)
		testsupport.Equal(t, r.conn().protocol, upstream.HTTP2, "HTTP/2 was not offered again: %v")
		testsupport.NoError(t, r.do())
	})
}

func TestHTTP2ConnectionDialledBeforeTheDemotionIsNotUsed(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			if c.offer {
				return dialResult{after: 10 * msec, protocol: upstream.HTTP2, places: 1}
			}
			return dialResult{after: 50 * msec}
		})
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, RefusesHTTP2: true}, false)
		first := acquire(t, p) // it starts another dial, which offers HTTP/2 too
		pass(5 * msec)
		first.do()
		second := ask(t, p, sec)
		pass(sec)
		testsupport.True(t, second.err == nil && second.conn().protocol == upstream.HTTP1, "the second request got %v on %v, want HTTP/1", second.err, second.conn().protocol)
		second.do()
		testsupport.Equal(t, s.openCount(), 1, "%d connections are open, want only that of HTTP/1")
		testsupport.Equal(t, p.Snapshot().Protocol, upstream.HTTP1, "the pool uses %v")
	})
}

func TestConfiguredHTTP2IsNeverDemoted(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol = upstream.HTTP2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		s.violate(&upstream.Error{Outcome: upstream.BadResponse, RefusesHTTP2: true}, false)
		acquire(t, p).do()
		testsupport.True(t, !p.Snapshot().Demoted, "demoted")
	})
}
