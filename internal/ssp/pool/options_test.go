package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func changeOptions(p *Pool, change func(*Options)) {
	o := p.Options()
	change(&o)
	p.SetOptions(o)
}

func TestLoweredMaxConnsWhileDialsAreUnderWay(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.PendingTimeout = 8, 8, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := askAll(t, p, 8, sec)
		synctest.Wait()
		changeOptions(p, func(o *Options) { o.MaxConns, o.MaxIdle = 2, 2 })
		pass(20 * msec)
		s.locked(func() { s.maxOpen = 0 }) // dials are not cancelled
		testsupport.Equal(t, s.openCount(), 2, "%d connections are open")
		useAll(all)
	})
}

func TestRaisedMaxConnsDialsForWaiters(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.PendingTimeout = 1, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		a, b := ask(t, p, sec), ask(t, p, sec)
		pass(50 * msec)
		changeOptions(p, func(o *Options) { o.MaxConns = 3 })
		pass(10 * msec)
		testsupport.MustTrue(t, a.ended() && b.ended(), "requests wait, but two more connections may be opened")
		useAll([]*request{held, a, b})
	})
}

func TestLoweredMaxHTTP2ConnsDrainsTheSurplus(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MinIdle = 3 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		testsupport.NoError(t, p.Warm(t.Context()))
		a, b := acquire(t, p), acquire(t, p)
		changeOptions(p, func(o *Options) { o.MaxHTTP2Conns = 1 })
		synctest.Wait()
		testsupport.Equal(t, s.openCount(), 2, "%d connections are open, want the two in use")
		snap := p.Snapshot()
		if snap.Active[exchange.HTTP2] != 1 || snap.Draining[exchange.HTTP2] != 1 || snap.PlacesLimit != 11 {
			t.Errorf("the pool is %+v, want one active and one draining connection, with ten places and one", snap)
		}
		useAll([]*request{a, b})
		pass(2 * sec)
		n := s.openCount()
		testsupport.True(t, n == 1 && s.dialCount() == 3, "%d connections are open after %d dials, want 1 after 3", n, s.dialCount())
	})
}

func TestLoweredMaxPendingRefusesTheLastRequests(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		held := acquire(t, p)
		all := askAll(t, p, 5, sec)
		changeOptions(p, func(o *Options) { o.MaxPending = 2 })
		synctest.Wait()
		for i, r := range all {
			if i < 2 {
				r.wantWaits()
			} else {
				r.wantErr(exchange.PendingFull, 0)
			}
		}
		useAll(append(all[:2:2], held))
	})
}

func TestNewTimeoutsApplyToLaterRequests(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		acquire(t, p)
		before := ask(t, p, sec)
		changeOptions(p, func(o *Options) { o.PendingTimeout = 20 * msec })
		after := ask(t, p, sec)
		pass(100 * msec)
		before.wantErr(exchange.PendingTimeout, 50*msec)
		after.wantErr(exchange.PendingTimeout, 20*msec)
	})
}

func TestLoweredMaxAgeAndIdleTimeoutApplyToOpenConnections(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"max_age":      func(o *Options) { o.MaxAge = 10 * sec },
		"idle_timeout": func(o *Options) { o.IdleTimeout = 10 * sec },
		"max_idle":     func(o *Options) { o.MaxIdle = 0 },
	} {
		runInBubble(t, name, func(o *Options) { o.MaxAge = time.Hour }, func(t *testing.T, s *fakeSSP, p *Pool) {
			fill(t, p, 3)
			pass(15 * sec)
			changeOptions(p, change)
			pass(sec)
			testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
		})
	}
}

func TestRaisedMinIdleOpensConnections(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		changeOptions(p, func(o *Options) { o.MinIdle = 3 })
		pass(10 * msec)
		testsupport.Equal(t, s.openCount(), 3, "%d connections are open")
	})
}

func TestShorterBackoffAppliesAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(0)
		changeOptions(p, func(o *Options) { o.BackoffMin, o.BackoffMax = 10*msec, 10*msec })
		for range 100 {
			ask(t, p, sec)
			pass(10 * msec)
		}
		testsupport.AtLeast(t, s.dialCount(), 40, "%d dials in 1 s of a back-off of 10 ms")
	})
}

func TestNewConnVersionReplacesOpenConnectionsWithoutAPause(t *testing.T) {
	for name, with := range map[string]func(*Options){"idle ones": nil, "multiplexed ones in use": multiplexed} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			s := newFakeSSP(t)
			if with != nil {
				s = newHTTP2SSP(t)
			}
			p := start(t, s, func(o *Options) {
				if with != nil {
					with(o)
				}
				o.MinIdle = 2
			})
			testsupport.NoError(t, p.Warm(t.Context()))
			before := s.dialCount()
			changeOptions(p, func(o *Options) { o.PendingTimeout = sec })
			pass(time.Minute / 4)
			testsupport.MustEqual(t, s.dialCount(), before, "%d dials after %d, but ConnVersion did not change", before)
			changeOptions(p, func(o *Options) { o.ConnVersion++ })
			for range 80 { // 8 s
				testsupport.NoError(t, acquire(t, p).do())
				pass(100 * msec)
			}
			testsupport.AtLeast(t, s.openCount(), 2, "%d connections are open, want 2")
			for _, m := range openMembers(p) {
				testsupport.True(t, m.version == 1, "connection %d of the previous version is open", m.conn.n)
			}
		})
	}
}

func TestNewConnVersionReplacesTheConnectionOfAnEarlierDial(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		r := ask(t, p, sec)
		synctest.Wait() // until the dial is under way
		changeOptions(p, func(o *Options) { o.ConnVersion++ })
		pass(20 * msec)
		testsupport.MustTrue(t, r.ended(), "the dial has not ended")
		useAll([]*request{r})
		pass(renewal + 2*janitorPeriod)
		testsupport.Equal(t, s.openCount(), 0, "%d connections are open, want none of the previous version")
	})
}

func TestProtocolOfARunningPoolCannotBeChanged(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		defer func() {
			testsupport.True(t, recover() != nil, "no panic")
		}()
		changeOptions(p, func(o *Options) { o.Protocol = exchange.HTTP2 })
	})
}
