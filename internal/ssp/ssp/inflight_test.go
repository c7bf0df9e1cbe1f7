package ssp

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestInFlightNeverExceedsItsLimit(t *testing.T) {
	var f InFlight
	f.SetLimit(3)
	var now, most, refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if !f.Acquire() {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				n := now.Add(1)
				runtime.Gosched() // so that all eight try meanwhile
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				testsupport.Between(t, f.Now(), 1, 3, "the count is %d")
				now.Add(-1)
				f.Release()
			}
		})
	}
	wg.Wait()
	testsupport.True(t, most.Load() == 3 && f.Now() == 0 && refused.Load() != 0, "%d at once, want 3; %d left, %d refused", most.Load(), f.Now(), refused.Load())
}

func TestLoweredLimitKeepsRequestsInFlight(t *testing.T) {
	var f InFlight
	for range 5 {
		testsupport.MustTrue(t, f.Acquire(), "refused without a limit")
	}
	f.SetLimit(2)
	testsupport.True(t, f.Now() == 5 && f.Limit() == 2 && !f.Acquire(), "%d of %d, and one more was admitted", f.Now(), f.Limit())
	for range 4 {
		f.Release()
	}
	testsupport.True(t, f.Acquire() && !f.Acquire(), "one of two was in flight: exactly one more may be admitted")
}

func TestReleasingTwiceIsABug(t *testing.T) {
	defer func() {
		testsupport.True(t, recover() != nil, "no panic")
	}()
	new(InFlight).Release()
}
