//go:build !race

package pool

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
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
		for next := 100 * msec; ; {
			select {
			case <-stop:
				return
			case <-time.After(next):
			}
			next = sec
			var late []*fakeConn
			for _, m := range openMembers(p) {
				if left := *limit - m.unused; m.inUse == 0 && left <= 0 {
					late = append(late, m.conn)
				} else {
					next = max(min(next, left), 100*msec)
				}
			}
			for _, c := range late {
				if c.CloseReason() != exchange.NotClosed {
					continue
				}
				c.closeItself(exchange.ClosedByPeer)
				if c.protocol != exchange.HTTP1 {
					c.owner.Changed()
				}
			}
		}
	}()
}

// The pool closes idle connections before the SSP does. Without pool.auto, and in a dry run, it does not.
func TestIdleTimeoutFollowsTheSSP(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*Options)
		protocol exchange.Protocol
		least    time.Duration // the timeout that is learned from a limit of 20 s
		most     time.Duration
		applied  bool
	}{
		{"enabled", nil, exchange.HTTP1, 17 * sec, 19 * sec, true},
		{"over HTTP/2", func(o *Options) { o.Protocol = exchange.Unknown }, exchange.HTTP2, 17 * sec, 19 * sec, true},
		{"dry run", func(o *Options) { o.Auto.DryRun = true }, exchange.HTTP1, 55 * sec, 55 * sec, false},
		{"not enabled", func(o *Options) { o.Auto = AutoSize{} }, exchange.HTTP1, 55 * sec, 55 * sec, false},
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
			got := idleTimeoutOf(p)
			testsupport.MustTrue(t, got >= c.least && got <= c.most, "idle connections close after %v, want %v to %v", got, c.least, c.most)
			snap := p.Snapshot()
			if a := snap.Auto; a != nil && (a.IdleTimeoutSeconds < 17 || a.IdleTimeoutSeconds > 19) {
				t.Errorf("the snapshot says %v s", a.IdleTimeoutSeconds)
			}
			if !c.applied {
				return
			}
			found := p.closedFor(exchange.ClosedByPeer) + p.closedFor(exchange.ClosedGoaway)
			fill(t, p, 4)
			pass(19*sec + 500*msec)
			testsupport.Equal(t, s.openCount(), 0, "%d connections are open after 19.5 s")
			testsupport.Equal(t, p.closedFor(exchange.ClosedByPeer)+p.closedFor(exchange.ClosedGoaway), found, "the SSP has closed %d connections")
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
	learn(p, 5)
	return p
}

// SSPs raise their limits. A pool that closes first does not see that, so its limit grows by a quarter after
// each hour without a close by the SSP, up to idle_timeout, 55 s. An hour without idle connections shows
// nothing.
func TestLearnedIdleLimitGrowsAfterEachHourWithoutACloseByTheSSP(t *testing.T) {
	testsupport.Long(t)
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		testsupport.RunBubble(t, protocol.String(), func(t *testing.T) {
			s := newFakeSSP(t, dialResult{after: 10 * msec, protocol: protocol})
			p := learnedAfter(t, s, func(o *Options) { o.Protocol = exchange.Unknown })
			pass(2 * time.Hour)
			testsupport.Equal(t, idleTimeoutOf(p), 19*sec, "after two hours without a request, idle connections close after %v")
			for i, want := range []time.Duration{23 * sec, 29 * sec, 37 * sec, 46 * sec, 55 * sec, 55 * sec} {
				fill(t, p, 3)
				pass(61 * time.Minute)
				testsupport.Equal(t, idleTimeoutOf(p), want, "after %[2]d hours with requests, idle connections close after %[1]v", i+1)
			}
			testsupport.Equal(t, p.Snapshot().LearnedIdleSeconds, 61.03515625, "the learned limit is %v s, and does not grow beyond what idle_timeout needs")
		})
	}
}

// An SSP whose limit is as before closes the connections that are idle for longer than it, and the pool has
// its old limit again.
func TestLearnedIdleLimitThatGrewTooMuchFallsBack(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := learnedAfter(t, s, nil)
		limit := 20 * sec
		closing(t, p, s, &limit)
		fill(t, p, 3)
		pass(30 * time.Minute)
		testsupport.Equal(t, p.closedFor(exchange.ClosedIdle), 3, "%d connections closed as idle")
		pass(31 * time.Minute)
		testsupport.MustEqual(t, idleTimeoutOf(p), 23*sec, "after an hour, idle connections close after %v")
		fill(t, p, 3)
		pass(30 * sec)
		testsupport.Equal(t, p.closedFor(exchange.ClosedByPeer), 3, "the SSP closed %d connections")
		testsupport.Between(t, idleTimeoutOf(p), 17*sec, 19*sec, "then they close after %v, want about 19s")
	})
}

// A close by the SSP begins the hour anew.
func TestLearnedIdleLimitStaysWhileTheSSPCloses(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := learnedAfter(t, newFakeSSP(t), nil)
		for range 4 {
			fill(t, p, 3)
			pass(50 * time.Minute)
			learn(p, 1)
		}
		testsupport.Equal(t, idleTimeoutOf(p), 19*sec, "idle connections close after %v")
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

// Closes because of an announced time teach nothing.
func TestAnnouncedTimesTeachNoIdleTimeout(t *testing.T) {
	inBubble(t, sizesItself, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.locked(func() { s.idleLimit = 5 * sec })
		for range 12 {
			fill(t, p, 4)
			pass(7 * sec)
			testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
		}
		testsupport.Equal(t, p.closedFor(exchange.ClosedIdle), 48, "%d connections closed as idle")
		testsupport.Equal(t, idleTimeoutOf(p), 55*sec, "the idle timeout is %v")
	})
}
