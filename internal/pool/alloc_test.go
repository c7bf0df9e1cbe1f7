//go:build !race

package pool

import (
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/sizer"
	"adbuffer/internal/upstream"
)

func TestAcquireOfAnIdleConnectionAllocatesNothing(t *testing.T) {
	for name, c := range map[string]nullConn{
		"exclusive":   {protocol: upstream.HTTP1, places: 1},
		"multiplexed": {protocol: upstream.HTTP2, places: 100},
		"autosized":   {protocol: upstream.HTTP1, places: 1},
	} {
		p := startFor(t, c, 4)
		if name == "autosized" {
			changeOptions(p, func(o *Options) { o.Auto = AutoSize{Enabled: true, MinConns: 4} })
			p.learned.note(20*sec, 20*sec, 20*sec, 20*sec, 20*sec)
		}
		ex := newExchange()
		if n := testing.AllocsPerRun(1000, func() {
			if err := acquireAndRelease(p, ex); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

func TestTickAllocatesNothing(t *testing.T) {
	p, now := startAutosized(t), time.Now()
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(sizer.Interval)
		p.Tick(now, false)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// Two requests alternate on one connection: each waits for the other.
func TestWaitingForAPlaceAllocatesNothing(t *testing.T) {
	for _, fair := range []bool{false, true} {
		waitWithoutAllocations(t, fair)
	}
}

func waitWithoutAllocations(t *testing.T, fair bool) {
	p := startFor(t, nullConn{protocol: upstream.HTTP1, places: 1}, 1)
	changeOptions(p, func(o *Options) { o.Fair = fair })
	held, err := p.Acquire(newExchange())
	if err != nil {
		t.Fatal(err)
	}
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
	if n := testing.AllocsPerRun(1000, func() {
		ask <- struct{}{}
		for waiting := 0; waiting == 0; { // until the second request is in the queue
			p.mu.Lock()
			waiting = p.queue.n
			p.mu.Unlock()
			runtime.Gosched()
		}
		held.Release(new(upstream.Exchange))
		held = <-got
	}); n >= 1 { // a garbage collection may empty the pool of waiters
		t.Errorf("%v allocations a wait, want none", n)
	}
	held.Release(new(upstream.Exchange))
	if n := p.stats.acquire[waited].Count(); n < 1000 {
		t.Errorf("%d requests waited, want all", n)
	}
}

func TestErrorWhileAddressesPauseAllocatesNothing(t *testing.T) {
	s := newFakeSSP(t)
	s.refuse(0)
	p := start(t, s, func(o *Options) { o.BackoffMin, o.BackoffMax = 1000*sec, 1000*sec })
	ex := newExchange()
	for range 2 { // the second failure in a row begins the pause
		if _, err := p.Acquire(ex); err == nil {
			t.Fatal("the request got a place")
		}
	}
	if n := testing.AllocsPerRun(1000, func() {
		if err := acquireAndRelease(p, ex); err != p.governor.paused {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations, want none", n)
	}
}
