package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/upstream"
)

// closeIdle makes the peer close all connections that are idle, once that long
// has passed.
func closeIdle(s *peer, after time.Duration) {
	time.Sleep(after)
	for _, c := range s.conns {
		c.shut(upstream.ClosedByPeer)
	}
	synctest.Wait()
}

func wantLearned(t *testing.T, p *Pool, low, high time.Duration) {
	t.Helper()
	if got := p.Snapshot().LearnedIdleSeconds; got < low.Seconds() || got > high.Seconds() {
		t.Errorf("the learned idle limit is %v s, want %v to %v", got, low, high)
	}
}

func TestIdleLimitIsLearnedFromWhatTheJanitorFindsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxIdle = 16, 16 })
		pass(300 * msec) // not in step with the janitor
		fill(t, p, 8)
		wantLearned(t, p, 0, 0)
		closeIdle(s, 20*sec)
		pass(2 * sec)
		wantLearned(t, p, 19*sec, 20*sec)
	})
}

func TestIdleLimitIsLearnedFromRequestsThatMeetAClosedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, nil)
		for range learnedLeast {
			lend(t, p).do()
			time.Sleep(800 * msec) // the janitor looks at none that is idle for less than a second
			for _, c := range s.conns {
				c.shut(upstream.ClosedByPeer)
			}
			lend(t, p).do()
		}
		wantLearned(t, p, 400*msec, 800*msec)
	})
}

func TestIdleLimitIsLearnedFromLostRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, nil)
		for range learnedLeast {
			s.do = nil
			lend(t, p).do()
			time.Sleep(3 * sec)
			s.do = func(c *fakeConn, _ *upstream.Exchange) error {
				c.shut(upstream.ClosedError)
				return &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed, Stale: true}
			}
			lend(t, p).do()
		}
		wantLearned(t, p, 3*sec, 3*sec)
	})
}

func TestIdleLimitOfHTTP2IsLearnedToTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.speakHTTP2()
		p := start(t, s, auto)
		for range learnedLeast {
			lend(t, p).do()
			time.Sleep(7 * sec)
			s.conn(len(s.conns) - 1).leave(upstream.ClosedGoaway)
			pass(msec)
		}
		wantLearned(t, p, 7*sec, 7*sec)
	})
}

func TestIdleLimitIsLowAmongTheAges(t *testing.T) {
	var l learnedIdle
	for i := range 100 {
		l.note(time.Duration(100-i) * sec)
	}
	if l.limit != 6*sec {
		t.Errorf("of 1 s to 100 s the limit learned is %v, want the 5th percentile", l.limit)
	}
	for range learnedAges {
		l.note(30 * sec)
	}
	if l.limit != 30*sec {
		t.Errorf("after many closes at 30 s the limit is %v", l.limit)
	}
}

func TestNothingIsLearnedFromAPeerThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxIdle = 16, 16 })
		fill(t, p, 4)
		held := []*request{}
		for range 4 {
			held = append(held, lend(t, p))
		}
		fill(t, p, 4) // others
		pass(10 * sec)
		finish(held) // four are idle since now, the others for ten seconds
		closeIdle(s, 3*sec)
		pass(2 * sec)
		if n := p.closedFor(upstream.ClosedByPeer); n != 8 {
			t.Fatalf("%d connections were found closed, want 8", n)
		}
		wantLearned(t, p, 0, 0)
	})
}

func TestNothingIsLearnedFromClosesThatAreNotAboutIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, nil)
		s.do = func(c *fakeConn, _ *upstream.Exchange) error { c.shut(upstream.ClosedByPeer); return nil }
		for range 2 * learnedLeast { // Connection: close
			lend(t, p).do()
		}
		s.do = nil
		for range 2 * learnedLeast { // a FIN right behind the answer
			lend(t, p).do()
			time.Sleep(20 * msec)
			s.conn(len(s.conns) - 1).shut(upstream.ClosedByPeer)
			lend(t, p).do()
		}
		for range 2 * learnedLeast { // our own idle_timeout
			lend(t, p).do()
			pass(56 * sec)
		}
		wantLearned(t, p, 0, 0)
	})
}
