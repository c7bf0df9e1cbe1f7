package ssp

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestInFlightNeverExceedsItsLimit(t *testing.T) {
	var f InFlight
	f.SetLimit(3)
	var now, most, refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				if !f.Acquire() {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				n := now.Add(1)
				runtime.Gosched() // so that all eight try meanwhile
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if c := f.Now(); c < 1 || c > 3 {
					t.Errorf("the count is %d", c)
				}
				now.Add(-1)
				f.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() != 3 || f.Now() != 0 || refused.Load() == 0 {
		t.Errorf("%d at once, want 3; %d left, %d refused", most.Load(), f.Now(), refused.Load())
	}
}

func TestLoweredLimitKeepsRequestsInFlight(t *testing.T) {
	var f InFlight
	for range 5 {
		if !f.Acquire() {
			t.Fatal("refused without a limit")
		}
	}
	f.SetLimit(2)
	if f.Now() != 5 || f.Limit() != 2 || f.Acquire() {
		t.Errorf("%d of %d, and one more was admitted", f.Now(), f.Limit())
	}
	for range 4 {
		f.Release()
	}
	if !f.Acquire() || f.Acquire() {
		t.Error("one of two was in flight: exactly one more may be admitted")
	}
}

func TestReleasingTwiceIsABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	new(InFlight).Release()
}
