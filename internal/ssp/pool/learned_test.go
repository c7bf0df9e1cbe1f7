package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// closeIdle waits for the given duration, and then makes the SSP close all idle connections.
func closeIdle(s *fakeSSP, after time.Duration) {
	time.Sleep(after)
	for _, c := range s.conns {
		c.closeItself(exchange.ClosedByPeer)
	}
	synctest.Wait()
}

// loseRace ends an exchange whose connection the SSP closes as the request arrives.
func loseRace(c *fakeConn, _ *exchange.Exchange) error {
	c.closeItself(exchange.ClosedError)
	return &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Stale: true}
}

func wantLearned(t *testing.T, p *Pool, low, high time.Duration) {
	t.Helper()
	got := p.Snapshot().LearnedIdleSeconds
	testsupport.True(t, got >= low.Seconds() && got <= high.Seconds(), "the learned idle limit is %v s, want %v to %v", got, low, high)
}

func TestIdleLimitIsLearnedFromConnectionsThatTheJanitorFindsClosed(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 16, 16 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		pass(300 * msec) // out of step with the janitor
		fill(t, p, 8)
		wantLearned(t, p, 0, 0)
		closeIdle(s, 20*sec)
		pass(2 * sec)
		wantLearned(t, p, 19*sec, 20*sec)
	})
}

func TestIdleLimitIsLearnedFromRequestsThatFindAClosedConnection(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		for range learnedLeast {
			acquire(t, p).do()
			time.Sleep(800 * msec) // the janitor checks no connection that is idle for less than a second
			for _, c := range s.conns {
				c.closeItself(exchange.ClosedByPeer)
			}
			acquire(t, p).do()
		}
		wantLearned(t, p, 400*msec, 800*msec)
	})
}

func TestIdleLimitIsLearnedFromLostRaces(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		for range learnedLeast {
			s.do = nil
			acquire(t, p).do()
			time.Sleep(3 * sec)
			s.do = loseRace
			r := acquire(t, p)
			testsupport.MustTrue(t, r.do() != nil, "no lost race")
			s.do = nil
			retry, err := p.Acquire(r.ex)
			testsupport.NoError(t, err)
			testsupport.NoError(t, retry.Do(r.ex))
		}
		wantLearned(t, p, 3*sec, 3*sec)
	})
}

// An SSP that answers some requests by closing the connection, as nginx does with status 444, closes it
// again when such a request is repeated.
func TestNothingIsLearnedFromClosesThatAnswerARequest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		for range 12 {
			s.do = nil
			acquire(t, p).do()
			time.Sleep(140 * msec)
			s.do = loseRace
			r := acquire(t, p)
			testsupport.MustTrue(t, r.do() != nil, "no close")
			s.do = func(c *fakeConn, ex *exchange.Exchange) error { // not stale: the connection is new
				_ = loseRace(c, ex)
				return errFakeLost
			}
			retry, err := p.Acquire(r.ex)
			testsupport.NoError(t, err)
			testsupport.MustTrue(t, retry.Do(r.ex) != nil, "no close")
		}
		wantLearned(t, p, 0, 0)
	})
}

func TestIdleLimitOfHTTP2IsLearnedExactly(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		for range learnedLeast {
			acquire(t, p).do()
			time.Sleep(7 * sec)
			s.last().goAway(exchange.ClosedGoaway)
			pass(msec)
		}
		wantLearned(t, p, 7*sec, 7*sec)
	})
}

func TestIdleLimitIsALowPercentileOfTheAges(t *testing.T) {
	var l learnedIdle
	for i := range 100 {
		l.note(time.Duration(100-i) * sec)
	}
	testsupport.Equal(t, l.limit, 6*sec, "from 1 s to 100 s the pool learned %v, want the 5th percentile")
	for range learnedAges {
		l.note(30 * sec)
	}
	testsupport.Equal(t, l.limit, 30*sec, "after many closes at 30 s the limit is %v")
}

func TestNothingIsLearnedFromAnSSPThatStops(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 16, 16 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 4)
		held := acquireAll(t, p, 4)
		fill(t, p, 4) // four other connections
		pass(10 * sec)
		useAll(held) // four connections are idle since now, and four for ten seconds
		closeIdle(s, 3*sec)
		pass(2 * sec)
		testsupport.MustEqual(t, p.closedFor(exchange.ClosedByPeer), 8, "%d connections were found closed")
		wantLearned(t, p, 0, 0)
	})
}

func TestNothingIsLearnedFromClosesForOtherReasons(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.do = func(c *fakeConn, _ *exchange.Exchange) error { c.closeItself(exchange.ClosedByPeer); return nil }
		for range 2 * learnedLeast { // Connection: close
			acquire(t, p).do()
		}
		s.do = nil
		for range 2 * learnedLeast { // a FIN directly after the response
			acquire(t, p).do()
			time.Sleep(20 * msec)
			s.last().closeItself(exchange.ClosedByPeer)
			acquire(t, p).do()
		}
		for range 2 * learnedLeast { // the pool's own idle_timeout
			acquire(t, p).do()
			pass(56 * sec)
		}
		wantLearned(t, p, 0, 0)
	})
}

// An SSP that closes connections at any age closes them for another reason: after each response, or
// at random while a request is sent.
func TestNothingIsLearnedFromClosesAtAnyAge(t *testing.T) {
	for name, found := range map[string]bool{"after a response": true, "while a request is sent": false} {
		runInBubble(t, name, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
			for i := range 100 {
				s.do = nil
				acquire(t, p).do()
				time.Sleep(time.Duration(20+20*(i%10)) * msec) // 20 to 200 ms
				if found {
					s.last().closeItself(exchange.ClosedByPeer)
					continue
				}
				s.do = loseRace
				r := acquire(t, p)
				r.do()
				s.do = nil
				retry, err := p.Acquire(r.ex)
				testsupport.NoError(t, err)
				testsupport.NoError(t, retry.Do(r.ex))
			}
			wantLearned(t, p, 0, 0)
		})
	}
}

// An SSP that stops closes busy connections too, which does not hide its idle limit.
func TestIdleLimitOutlastsARestartOfTheSSP(t *testing.T) {
	var l learnedIdle
	now := time.Now()
	for range 100 {
		l.note(30 * sec)
	}
	for range 50 {
		l.lostRace(msec, now)
	}
	testsupport.Equal(t, l.limit, 30*sec, "after a restart the limit is %v")
}

// A close directly after a response says nothing about idle connections, and does not grow.
func TestClosesAfterResponsesDoNotGrow(t *testing.T) {
	var l learnedIdle
	l.note(20*sec, 20*sec, 20*sec, 20*sec, 20*sec)
	l.raise(25 * sec)
	testsupport.Equal(t, l.limit, 25*sec, "the limit is %v")
	l.note(0)
	l.raise(30 * sec)
	testsupport.Equal(t, l.limit, 0, "with a sixth of the closes after responses, the limit is %v")
}
