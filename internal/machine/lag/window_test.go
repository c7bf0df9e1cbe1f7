package lag

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

// A window reports the smallest lag within 100 ms. One late tick does not raise it, but a process that lags all the
// time does.
func TestAWindowReportsTheStandingLag(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newStarved()
		var late atomic.Int64 // of each tick, in nanoseconds
		s.yield = func() { time.Sleep(time.Duration(late.Load())) }
		var mu sync.Mutex
		var reports []time.Duration
		s.OnWindow(func(least, length time.Duration) {
			testsupport.AtLeast(t, length, windowLength, "a window of %v")
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, least)
		})
		during := func(lag, d time.Duration) []time.Duration {
			late.Store(int64(lag))
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			was := reports
			reports = nil
			return was
		}
		stop := s.Watch()
		during(0, time.Second)
		if got := during(0, time.Second); len(got) != 5 || slices.Max(got) != 0 {
			t.Errorf("without lag: %v", got)
		}
		during(90*msec, 150*msec)
		if got := during(0, time.Second); slices.Max(got) != 0 {
			t.Errorf("after one late tick: %v", got)
		}
		got := append(during(600*msec, 150*msec), during(0, time.Second)...)
		got = slices.Compact(got) // without the zeros before and after
		if len(got) < 6 || got[len(got)-1] != 0 || !slices.IsSorted(got[:len(got)-1]) || slices.Max(got) < 500*msec {
			t.Errorf("during a tick that is late by 600 ms, and after it: %v", got)
		}
		during(20*msec, time.Second)
		if got := during(20*msec, time.Second); len(got) < 7 || slices.Min(got) != 20*msec || slices.Max(got) != 20*msec {
			t.Errorf("with a standing lag of 20 ms: %v", got)
		}
		stop()
		time.Sleep(time.Second)
	})
}
