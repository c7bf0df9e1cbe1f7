package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// sizesItself is for pools that learn when idle connections must close.
func sizesItself(o *Options) {
	o.MaxConns, o.MaxIdle, o.Auto = 16, 16, AutoSize{Enabled: true, MinConns: 16}
}

// closing makes the SSP close each connection that was idle for limit, until the test ends.
func closing(t *testing.T, p *Pool, s *fakeSSP, limit *time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * msec):
			}
			var late []*fakeConn
			p.mu.Lock()
			for m := range p.conns.members {
				if m.inUse == 0 && time.Since(m.used) >= *limit {
					late = append(late, m.conn.(*fakeConn))
				}
			}
			p.mu.Unlock()
			for _, c := range late {
				if c.CloseReason() != upstream.NotClosed {
					continue
				}
				c.closeItself(upstream.ClosedByPeer)
				if c.protocol != upstream.HTTP1 {
					c.owner.Changed()
				}
			}
		}
	}()
}

func (p *Pool) idleTimeout() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns.idleRule.timeout()
}

// The pool closes idle connections before the SSP does. Its canaries find out that the SSP keeps them for
// longer, a quarter at a time, up to idle_timeout. Without pool.auto, and in a dry run, nothing changes.
func TestIdleTimeoutFollowsTheSSP(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*Options)
		protocol upstream.Protocol
		least    time.Duration // the timeout that is learned from a limit of 20 s
		most     time.Duration
		applied  bool
	}{
		{"enabled", nil, upstream.HTTP1, 17 * sec, 19 * sec, true},
		{"over HTTP/2", func(o *Options) { o.Protocol = upstream.Unknown }, upstream.HTTP2, 17 * sec, 19 * sec, true},
		{"dry run", func(o *Options) { o.Auto.DryRun = true }, upstream.HTTP1, 55 * sec, 55 * sec, false},
		{"not enabled", func(o *Options) { o.Auto = AutoSize{} }, upstream.HTTP1, 55 * sec, 55 * sec, false},
	} {
		runInBubble(t, c.name, func(o *Options) {
			sizesItself(o)
			if c.change != nil {
				c.change(o)
			}
		}, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: c.protocol})
			limit := 20 * sec
			closing(t, p, s, &limit)
			for range 5 {
				fill(t, p, 2)
				pass(30 * sec)
			}
			got := p.idleTimeout()
			testsupport.MustTrue(t, got >= c.least && got <= c.most, "idle connections close after %v, want %v to %v", got, c.least, c.most)
			snap := p.Snapshot()
			if a := snap.Auto; a != nil && (a.IdleTimeoutSeconds < 17 || a.IdleTimeoutSeconds > 19) {
				t.Errorf("the snapshot says %v s", a.IdleTimeoutSeconds)
			}
			if !c.applied {
				return
			}
			found := p.closedFor(upstream.ClosedByPeer) + p.closedFor(upstream.ClosedGoaway)
			fill(t, p, 4)
			pass(19 * sec)
			testsupport.Equal(t, s.openCount(), 1, "%d connections are open after 19 s, want the canary")
			pass(3 * sec)
			n := p.closedFor(upstream.ClosedByPeer) + p.closedFor(upstream.ClosedGoaway) - found
			testsupport.True(t, n == 1, "the SSP closed %d connections, want the canary", n)
			limit = 10 * time.Minute
			for _, want := range []struct{ least, most time.Duration }{{21 * sec, 24 * sec}, {27 * sec, 30 * sec}, {34 * sec, 38 * sec}} {
				for range canariesNeeded {
					fill(t, p, 3)
					pass(50 * sec)
				}
				testsupport.Between(t, p.idleTimeout(), want.least, want.most, "after %[2]d canaries idle connections close after %[1]v", canariesNeeded)
			}
			for range 5 * canariesNeeded {
				fill(t, p, 3)
				pass(60 * sec)
			}
			got = p.idleTimeout()
			testsupport.True(t, got >= 51*sec && got <= 55*sec, "in the end idle connections close after %v, want nearly idle_timeout, 55 s", got)
		})
	}
}

// learnedAfter returns a pool that has learned that the SSP closes idle connections after 20 s.
func learnedAfter(t *testing.T, s *fakeSSP, change func(*Options)) *Pool {
	t.Helper()
	p := start(t, s, func(o *Options) {
		sizesItself(o)
		if change != nil {
			change(o)
		}
	})
	p.mu.Lock()
	p.learned.note(20*sec, 20*sec, 20*sec, 20*sec, 20*sec)
	p.mu.Unlock()
	return p
}

// sendAs sends a request with the method, and returns which connection carried it.
func sendAs(t *testing.T, p *Pool, method upstream.Method) (conn int) {
	t.Helper()
	ex := &upstream.Exchange{Request: upstream.Request{Method: method}, Deadline: time.Now().Add(sec)}
	place, err := p.Acquire(ex)
	testsupport.NoError(t, err)
	conn = place.m.conn.(*fakeConn).n
	testsupport.NoError(t, place.Do(ex))
	synctest.Wait()
	return conn
}

func TestACanaryCarriesNoPOST(t *testing.T) {
	for _, protocol := range []upstream.Protocol{upstream.HTTP1, upstream.HTTP2} {
		for method, want := range map[upstream.Method]int{upstream.GET: 0, upstream.POST: 1} {
			testsupport.RunBubble(t, protocol.String()+" "+method.String(), func(t *testing.T) {
				s := newFakeSSP(t, dialResult{after: 10 * msec, protocol: protocol})
				p := learnedAfter(t, s, func(o *Options) { o.Protocol = upstream.Unknown })
				sendAs(t, p, upstream.POST)
				pass(18 * sec)
				testsupport.MustEqual(t, sendAs(t, p, upstream.POST), 0, "a POST after 18 s used connection %d")
				pass(21 * sec)
				testsupport.MustEqual(t, s.openCount(), 1, "%d connections are open, want the canary")
				testsupport.Equal(t, sendAs(t, p, method), want, "a %[2]v used connection %[1]d", method)
				pass(10 * sec)
				testsupport.Equal(t, s.openCount(), 1, "%d connections are open after the request")
			})
		}
	}
}

// A canary takes no place from other connections. It closes if a POST needs its place at max_conns, or if
// max_idle allows only a connection that was just used. min_idle connections are open beside it.
func TestACanaryTakesNoPlace(t *testing.T) {
	for _, c := range []struct {
		name                   string
		maxConns, minIdle, use int
		open                   int  // connections that are open then
		renewed                bool // none of them is one of the first
	}{
		{"idle", 4, 0, 0, 1, false},
		{"max_idle", 4, 0, 2, 2, false},
		{"min_idle", 4, 1, 0, 2, false},
		{"min_idle needs all connections", 3, 3, 0, 3, true},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			s := newFakeSSP(t)
			p := learnedAfter(t, s, func(o *Options) { o.MaxConns, o.MaxIdle, o.MinIdle = c.maxConns, 3, c.minIdle })
			fill(t, p, 3)
			held := acquireAll(t, p, c.use)
			pass(21 * sec)
			changeOptions(p, func(o *Options) { o.MaxIdle = max(2, c.minIdle) })
			used := make(map[*fakeConn]bool)
			for _, r := range held {
				used[r.place.m.conn.(*fakeConn)] = true
			}
			useAll(held)
			synctest.Wait()
			testsupport.Equal(t, s.openCount(), c.open, "%d connections are open")
			for i := range 3 {
				open := s.conn(i).CloseReason() == upstream.NotClosed
				if c.use > 0 && open != used[s.conn(i)] || c.renewed && open {
					t.Errorf("connection %d: used %v, open %v", i, used[s.conn(i)], open)
				}
			}
		})
	}
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := learnedAfter(t, s, func(o *Options) { o.MaxConns, o.MaxIdle = 1, 1 })
		sendAs(t, p, upstream.POST)
		pass(21 * sec)
		testsupport.MustEqual(t, s.openCount(), 1, "%d connections are open, want the canary")
		testsupport.Equal(t, sendAs(t, p, upstream.POST), 1, "the POST used connection %d")
	})
}

// A canary that the SSP closed shows its limit, and what was outlasted before counts no more.
func TestAClosedCanaryKeepsTheLimit(t *testing.T) {
	var l learnedIdle
	l.note(20*sec, 20*sec, 20*sec, 20*sec, 20*sec)
	for range 3 {
		for range canariesNeeded - 1 {
			l.outlasted(25 * sec)
		}
		l.note(21 * sec)
	}
	testsupport.Equal(t, l.limit, 20*sec, "the limit is %v")
	l.note(0) // a close after a response says nothing about idle connections
	for range canariesNeeded {
		l.outlasted(25 * sec)
	}
	if l.limit != 0 { // one of nine closes was none of an idle connection
		t.Errorf("the limit is %v", l.limit)
	}
}

func TestPoolThatStopsSizingItselfHasNoCanary(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := learnedAfter(t, s, nil)
		fill(t, p, 2)
		pass(20 * sec)
		changeOptions(p, func(o *Options) { o.Auto.Enabled = false })
		pass(34 * sec)
		testsupport.Equal(t, s.openCount(), 1, "%d connections are open before idle_timeout, want the one that was a canary")
		pass(3 * sec)
		testsupport.Equal(t, s.openCount(), 0, "%d connections are open after idle_timeout")
	})
}

func TestPoolThatSizesItselfInheritsTheIdleLimit(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for _, enabled := range []bool{true, false} {
			before := learnedAfter(t, newFakeSSP(t), nil)
			p := start(t, newFakeSSP(t), func(o *Options) { o.Auto = AutoSize{Enabled: enabled, MinConns: 1} })
			p.Inherit(before)
			testsupport.Equal(t, p.Snapshot().LearnedIdleSeconds == 20, enabled, "enabled %[2]v: it has the limit: %[1]v", enabled)
		}
	})
}

// Closes because of an announced time teach nothing, and leave no canary.
func TestAnnouncedTimesTeachNoIdleTimeout(t *testing.T) {
	inBubble(t, sizesItself, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.locked(func() { s.idleLimit = 5 * sec })
		for range 12 {
			fill(t, p, 4)
			pass(7 * sec)
			testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
		}
		testsupport.Equal(t, p.closedFor(upstream.ClosedIdle), 48, "%d connections closed as idle")
		testsupport.Equal(t, p.idleTimeout(), 55*sec, "the idle timeout is %v")
		p.mu.Lock()
		defer p.mu.Unlock()
		testsupport.Equal(t, p.conns.idleRule.canaries, 0, "%d canaries")
	})
}
