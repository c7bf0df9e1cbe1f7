package pool

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/sizer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// driveTicking sends requests, and ticks as the app does. It returns the decisions by kind.
func driveTicking(t *testing.T, p *Pool, every, length time.Duration, heldBack bool) (kinds [sizer.Kinds]int) {
	t.Helper()
	end := time.Now().Add(length)
	go func() {
		for time.Now().Before(end) {
			if d, ok := p.Tick(time.Now(), heldBack); ok {
				kinds[d.Kind]++
			}
			time.Sleep(sizer.Interval)
		}
	}()
	drive(t, p, every, length)
	time.Sleep(sec)
	synctest.Wait()
	return kinds
}

func TestPoolSizesItself(t *testing.T) {
	for _, c := range []struct {
		name        string
		change      func(o *Options)
		heldBack    bool
		least, most int // connections allowed after 10 s with 50 places in use
		grown       bool
	}{
		{name: "enabled", least: 50, most: 80, grown: true},
		{name: "max_conns is the ceiling", change: func(o *Options) { o.MaxConns = 30 }, least: 30, most: 30, grown: true},
		{name: "a breaker holds requests back", heldBack: true, least: 8, most: 8},
		{name: "dry run", change: func(o *Options) { o.Auto.DryRun = true }, least: 300, most: 300},
		{name: "not enabled", change: func(o *Options) { o.Auto.Enabled = false }, least: 300, most: 300},
	} {
		runInBubble(t, c.name, func(o *Options) {
			o.MaxConns, o.MaxIdle, o.MaxPending, o.MaxDials = 300, 300, 1000, 16
			o.Auto = AutoSize{Enabled: true, MinConns: 8}
			if c.change != nil {
				c.change(o)
			}
		}, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.do = holding(400 * msec)
			kinds := driveTicking(t, p, 8*msec, 10*sec, c.heldBack)
			snap := p.Snapshot()
			n := maxConnsOf(p)
			testsupport.True(t, n >= c.least && n <= c.most, "%d connections are allowed, want %d to %d; decisions %v", n, c.least, c.most, kinds)
			grown := kinds[sizer.Grown] > 0
			testsupport.True(t, grown == c.grown, "decisions %v", kinds)
			if c.grown && (snap.Auto == nil || snap.Auto.Counts["grown"] != uint64(kinds[sizer.Grown]) || len(snap.Auto.Decisions) == 0) {
				t.Errorf("the snapshot has %+v", snap.Auto)
			}
		})
	}
}

// A pool that stops sizing itself has its configured size at once, and its history is new after that.
func TestPoolThatStopsSizingItself(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.Auto = 100, AutoSize{Enabled: true, MinConns: 4} }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		limit := func() string { return fmt.Sprint(maxConnsOf(p)) }
		p.Tick(time.Now(), false)
		got := limit()
		changeOptions(p, func(o *Options) { o.Auto.Enabled = false })
		p.Tick(time.Now(), false)
		got += " " + limit()
		changeOptions(p, func(o *Options) { o.Auto.Enabled, o.MaxConns = true, 3 })
		p.Tick(time.Now(), false)
		if got += " " + limit(); got != "4 100 3" {
			t.Errorf("the limits were %s, want 4 100 3", got)
		}
	})
}

// After a growth that did not help, connections above the limit close as soon as they are free.
func TestRevertedGrowthClosesConnections(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 20, 20 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := acquireAll(t, p, 20)
		p.resize(12, 12, time.Now())
		for _, r := range all {
			r.place.Release(r.ex)
		}
		synctest.Wait()
		snap := p.Snapshot()
		testsupport.Equal(t, snap.Idle[exchange.HTTP1]+snap.Active[exchange.HTTP1], 12, "%d connections are open")
		p.resize(15, 0, time.Now())
		testsupport.True(t, surplusOf(p) <= 0 && maxConnsOf(p) == 15, "surplus %d, limit %d", surplusOf(p), maxConnsOf(p))
	})
}

// Each endpoint needs a connection, and min_idle stays in force, however small the pool makes itself.
func TestPoolThatSizesItselfKeepsMinIdleAndAConnectionForEachEndpoint(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for _, c := range []struct{ minIdle, endpoints, want int }{{0, 1, 1}, {5, 1, 5}, {0, 3, 3}, {9, 3, 9}, {50, 1, 20}} {
			p := start(t, newFakeSSP(t), func(o *Options) {
				o.MaxConns, o.MaxIdle, o.MinIdle, o.Auto = 20, 20, c.minIdle, AutoSize{Enabled: true, MinConns: 1}
				o.Endpoints = nil
				for i := range c.endpoints {
					o.Endpoints = append(o.Endpoints, balancer.Options{Name: fmt.Sprintf("ssp%d:80", i), Weight: 1})
				}
			})
			testsupport.Equal(t, maxConnsOf(p), c.want, "min_idle %[2]d and %[3]d endpoints: %[1]d connections", c.minIdle, c.endpoints)
		}
	})
}

// A request for which the last allowed dial is under way does not wait for the pool's size.
func TestRequestThatWaitsForTheLastDialDoesNotWaitForTheLimit(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxPending, o.PendingTimeout = 2, 2, 10, sec }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		for i, want := range []uint64{0, 0, 1, 2} {
			ask(t, p, 2*sec)
			testsupport.Equal(t, limitWaitsOf(p), want, "%d requests have waited for the limit after request %d", i+1)
		}
	})
}
