//go:build !race

package pool

import (
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/ssp/sizer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestAcquireOfAnIdleConnectionAllocatesNothing(t *testing.T) {
	for name, c := range map[string]nullConn{
		"exclusive":   {protocol: exchange.HTTP1, places: 1},
		"multiplexed": {protocol: exchange.HTTP2, places: 100},
		"autosized":   {protocol: exchange.HTTP1, places: 1},
	} {
		p := startFor(t, c, 4)
		if name == "autosized" {
			changeOptions(p, func(o *Options) { o.Auto = AutoSize{Enabled: true, MinConns: 4} })
			learn(p, 5)
		}
		ex := newExchange()
		n := testing.AllocsPerRun(1000, func() { testsupport.NoError(t, acquireAndRelease(p, ex)) })
		testsupport.Equal(t, n, 0, "%[2]s: %[1]v allocations", name)
	}
}

func TestTickAllocatesNothing(t *testing.T) {
	p, now := startFor(t, nullConn{protocol: exchange.HTTP1, places: 1}, 256), time.Now()
	changeOptions(p, func(o *Options) { o.Auto = AutoSize{Enabled: true, MinConns: 16} })
	n := testing.AllocsPerRun(1000, func() {
		now = now.Add(sizer.Interval)
		p.Tick(now, false)
	})
	testsupport.Equal(t, n, 0, "%v allocations")
}

// Two requests alternate on one connection: each waits for the other.
func TestWaitingForAPlaceAllocatesNothing(t *testing.T) {
	for _, fair := range []bool{false, true} {
		waitWithoutAllocations(t, fair)
	}
}

func waitWithoutAllocations(t *testing.T, fair bool) {
	p := startFor(t, nullConn{protocol: exchange.HTTP1, places: 1}, 1)
	changeOptions(p, func(o *Options) { o.Fair = fair })
	held, err := p.Acquire(newExchange())
	testsupport.NoError(t, err)
	ask, got := make(chan struct{}), make(chan Place)
	defer close(ask)
	go func() {
		ex := newExchange()
		for range ask {
			ex.Times.Queued = ex.Times.Acquired.Add(0)
			place, err := p.Acquire(ex)
			if err != nil {
				t.Error(err)
			}
			got <- place
		}
	}()
	n := testing.AllocsPerRun(1000, func() {
		ask <- struct{}{}
		for waiting := 0; waiting == 0; { // until the second request is in the queue
			waiting = queuedIn(p)
			runtime.Gosched()
		}
		held.Release(new(exchange.Exchange))
		held = <-got
	})
	testsupport.True(t, n < 1, "%v allocations a wait, want none", n) // a garbage collection may empty the pool of waiters
	held.Release(new(exchange.Exchange))
	testsupport.AtLeast(t, counted(p, "pool_acquire_seconds", "waited"), 1000, "%d requests waited")
}

func TestErrorWhileAddressesPauseAllocatesNothing(t *testing.T) {
	s := newFakeSSP(t)
	s.refuse(0)
	p := start(t, s, func(o *Options) { o.BackoffMin, o.BackoffMax = 1000*sec, 1000*sec })
	unverified(p)
	ex := newExchange()
	for range 2 { // the second failure in a row begins the pause
		if _, err := p.Acquire(ex); err == nil {
			t.Fatal("the request got a place")
		}
	}
	want := acquireAndRelease(p, ex)
	n := testing.AllocsPerRun(1000, func() {
		testsupport.MustTrue(t, want != nil && acquireAndRelease(p, ex) == want, "the request got another error")
	})
	testsupport.True(t, n < 1, "%v allocations, want none", n)
}
