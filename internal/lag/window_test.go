package lag

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
)

// The least lag of 100 ms is what a window reports. One late tick does not raise it, a process that lags
// all the time does.
func TestAWindowReportsTheStandingLag(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newStarved()
		late := time.Duration(0) // of each tick
		s.yield = func() { time.Sleep(late) }
		var reports []time.Duration
		s.OnWindow(func(least, length time.Duration) {
			if length < windowLength {
				t.Errorf("a window of %v", length)
			}
			reports = append(reports, least)
		})
		during := func(lag, d time.Duration) []time.Duration {
			late = lag
			time.Sleep(d)
			synctest.Wait()
			was := reports
			reports = nil
			return was
		}
		stop := s.Watch()
		during(0, time.Second)
		if got := during(0, time.Second); len(got) != 5 || slices.Max(got) != 0 {
			t.Errorf("without lag: %v", got)
		}
		during(600*msec, 150*msec)
		if got := during(0, time.Second); slices.Max(got) != 0 {
			t.Errorf("after one late tick: %v", got)
		}
		during(20*msec, time.Second)
		if got := during(20*msec, time.Second); len(got) < 7 || slices.Min(got) != 20*msec || slices.Max(got) != 20*msec {
			t.Errorf("with a standing lag of 20 ms: %v", got)
		}
		stop()
		time.Sleep(time.Second)
	})
}
