package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

func changeOptions(p *Pool, change func(*Options)) {
	o := p.Options()
	change(&o)
	p.SetOptions(o)
}

func TestLoweredMaxConnsClosesIdleConnectionsAtOnceAndUsedOnesLater(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxIdle = 8, 8 })
		fill(t, p, 8)
		var held []*request
		for range 4 {
			held = append(held, acquire(t, p))
		}
		s.mu.Lock()
		s.maxOpen = 0 // connections that were already open may stay for a while
		s.mu.Unlock()
		changeOptions(p, func(o *Options) { o.MaxConns, o.MaxIdle = 3, 3 })
		synctest.Wait()
		if n := s.openCount(); n != 4 {
			t.Errorf("%d connections are open, want the 4 in use", n)
		}
		for i, r := range held {
			r.do()
			synctest.Wait()
			if n := s.openCount(); n != 3 {
				t.Errorf("%d connections are open after %d were released, want 3", n, i+1)
			}
		}
		if n := p.closedFor(upstream.ClosedDrain); n != 5 {
			t.Errorf("%d connections closed as drained, want 5", n)
		}
		fill(t, p, 3)
		if n := s.dialCount(); n != 8 {
			t.Errorf("%d dials, want only the first 8", n)
		}
	})
}

func TestLoweredMaxConnsWhileDialsAreUnderWay(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxIdle, o.PendingTimeout = 8, 8, sec })
		var all []*request
		for range 8 {
			all = append(all, ask(t, p, sec))
		}
		synctest.Wait()
		changeOptions(p, func(o *Options) { o.MaxConns, o.MaxIdle = 2, 2 })
		pass(20 * msec)
		s.mu.Lock()
		s.maxOpen = 0 // dials are not cancelled
		s.mu.Unlock()
		if n := s.openCount(); n != 2 {
			t.Errorf("%d connections are open, want 2", n)
		}
		useAll(all)
	})
}

func TestRaisedMaxConnsDialsForWaiters(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.PendingTimeout = 1, sec })
		held := acquire(t, p)
		a, b := ask(t, p, sec), ask(t, p, sec)
		pass(50 * msec)
		changeOptions(p, func(o *Options) { o.MaxConns = 3 })
		pass(10 * msec)
		if !a.ended() || !b.ended() {
			t.Fatal("requests wait, but two more connections may be opened")
		}
		useAll([]*request{held, a, b})
	})
}

func TestLoweredMaxHTTP2ConnsDrainsTheSurplus(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newHTTP2SSP(t)
		p := start(t, s, func(o *Options) { multiplexed(o); o.MinIdle = 3 })
		if err := p.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, b := acquire(t, p), acquire(t, p)
		changeOptions(p, func(o *Options) { o.MaxHTTP2Conns = 1 })
		synctest.Wait()
		if n := s.openCount(); n != 2 {
			t.Errorf("%d connections are open, want the two in use", n)
		}
		snap := p.Snapshot()
		if snap.Active[upstream.HTTP2] != 1 || snap.Draining[upstream.HTTP2] != 1 || snap.PlacesLimit != 11 {
			t.Errorf("the pool is %+v, want one active and one draining connection, with ten places and one", snap)
		}
		useAll([]*request{a, b})
		pass(2 * sec)
		if n := s.openCount(); n != 1 || s.dialCount() != 3 {
			t.Errorf("%d connections are open after %d dials, want 1 after 3", n, s.dialCount())
		}
	})
}

func TestLoweredMaxPendingRefusesTheLastRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newFakeSSP(t), func(o *Options) { o.MaxConns = 1 })
		held := acquire(t, p)
		var all []*request
		for range 5 {
			all = append(all, ask(t, p, sec))
		}
		changeOptions(p, func(o *Options) { o.MaxPending = 2 })
		synctest.Wait()
		for i, r := range all {
			if i < 2 {
				r.wantWaits()
			} else {
				r.wantErr(upstream.PendingFull, 0)
			}
		}
		useAll(append(all[:2:2], held))
	})
}

func TestNewTimeoutsApplyToLaterRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newFakeSSP(t), func(o *Options) { o.MaxConns = 1 })
		held := acquire(t, p)
		before := ask(t, p, sec)
		changeOptions(p, func(o *Options) { o.PendingTimeout = 20 * msec })
		after := ask(t, p, sec)
		pass(100 * msec)
		before.wantErr(upstream.PendingTimeout, 50*msec)
		after.wantErr(upstream.PendingTimeout, 20*msec)
		held.do()
	})
}

func TestLoweredMaxAgeAndIdleTimeoutApplyToOpenConnections(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"max_age":      func(o *Options) { o.MaxAge = 10 * sec },
		"idle_timeout": func(o *Options) { o.IdleTimeout = 10 * sec },
		"max_idle":     func(o *Options) { o.MaxIdle = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				s := newFakeSSP(t)
				p := start(t, s, func(o *Options) { o.MaxAge = time.Hour })
				fill(t, p, 3)
				pass(15 * sec)
				changeOptions(p, change)
				pass(sec)
				if n := s.openCount(); n != 0 {
					t.Errorf("%d connections are open, want none", n)
				}
			})
		})
	}
}

func TestRaisedMinIdleOpensConnections(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, nil)
		changeOptions(p, func(o *Options) { o.MinIdle = 3 })
		pass(10 * msec)
		if n := s.openCount(); n != 3 {
			t.Errorf("%d connections are open, want 3", n)
		}
	})
}

func TestShorterBackoffAppliesAtOnce(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.refuse(0)
		p := start(t, s, nil)
		changeOptions(p, func(o *Options) { o.BackoffMin, o.BackoffMax = 10*msec, 10*msec })
		for range 100 {
			ask(t, p, sec)
			pass(10 * msec)
		}
		if n := s.dialCount(); n < 40 {
			t.Errorf("%d dials in 1 s of a back-off of 10 ms", n)
		}
	})
}

func TestNewConnVersionReplacesOpenConnectionsWithoutAPause(t *testing.T) {
	for name, with := range map[string]func(*Options){"idle ones": nil, "multiplexed ones in use": multiplexed} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
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
				if err := p.Warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				before := s.dialCount()
				changeOptions(p, func(o *Options) { o.PendingTimeout = sec })
				pass(time.Minute / 4)
				if n := s.dialCount(); n != before {
					t.Fatalf("%d dials after %d, but ConnVersion did not change", n, before)
				}
				changeOptions(p, func(o *Options) { o.ConnVersion++ })
				for range 80 { // 8 s
					ex := &upstream.Exchange{Deadline: time.Now().Add(sec)}
					place, err := p.Acquire(ex)
					if err != nil {
						t.Fatalf("no place: %v", err)
					}
					if err := place.Do(ex); err != nil {
						t.Fatalf("a request failed: %v", err)
					}
					pass(100 * msec)
				}
				if n := s.openCount(); n < 2 {
					t.Errorf("%d connections are open, want 2", n)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				for m := range p.conns.members {
					if m.version != 1 {
						t.Errorf("connection %d of the previous version is open", m.conn.(*fakeConn).n)
					}
				}
			})
		})
	}
}

func TestNewConnVersionReplacesTheConnectionOfAnEarlierDial(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, nil)
		r := ask(t, p, sec)
		synctest.Wait() // until the dial is under way
		changeOptions(p, func(o *Options) { o.ConnVersion++ })
		pass(20 * msec)
		if !r.ended() {
			t.Fatal("the dial has not ended")
		}
		useAll([]*request{r})
		pass(renewal + 2*janitorPeriod)
		if n := s.openCount(); n != 0 {
			t.Errorf("%d connections are open, want none of the previous version", n)
		}
	})
}

func TestProtocolOfARunningPoolCannotBeChanged(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newFakeSSP(t), nil)
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		changeOptions(p, func(o *Options) { o.Protocol = upstream.HTTP2 })
	})
}
