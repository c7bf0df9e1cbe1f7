package rates

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// TestWindowCountsItsLengthOnly compares the window with a list of all requests, over random
// lengths and times. The window must count all requests of the last 15/16 of its length, and none
// older than its length.
func TestWindowCountsItsLengthOnly(t *testing.T) {
	type event struct {
		at     time.Duration
		failed bool
	}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		length := time.Duration(1+rnd.IntN(20)) * time.Second
		var w Window
		w.Init(length, 0)
		var events []event
		now := time.Duration(0)
		for range 300 {
			now += time.Duration(rnd.ExpFloat64() * float64(length) / 30)
			if rnd.IntN(50) == 0 {
				now += time.Duration(rnd.Float64() * 3 * float64(length)) // a time without requests
			}
			e := event{now, rnd.IntN(2) == 0}
			events = append(events, e)
			w.Record(now, Group(rnd.IntN(allGroups)), e.failed)

			count := func(within time.Duration) (requests, failures uint64) {
				for _, e := range events {
					if now-e.at < within {
						requests++
						if e.failed {
							failures++
						}
					}
				}
				return
			}
			requests, failures := w.Tally()
			minRequests, minFailures := count(length * (slots - 1) / slots)
			maxRequests, maxFailures := count(length)
			if requests < minRequests || requests > maxRequests || failures < minFailures || failures > maxFailures {
				t.Fatalf("seed %d at %v of %v: %d of %d failed, want %d to %d of %d to %d",
					seed, now, length, failures, requests, minFailures, maxFailures, minRequests, maxRequests)
			}
		}
	}
}

// TestWindowIsExactAfterConcurrentUse checks that no count is lost, and that none stays in the
// window.
func TestWindowIsExactAfterConcurrentUse(t *testing.T) {
	var w Window
	w.Init(16*time.Millisecond, 0)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				now := time.Duration(i) * 10 * time.Microsecond
				w.Record(now, Group(g), i%2 == g%2)
				w.Ratio(0, 1)
			}
		})
	}
	wg.Wait()
	for g := range w.sums {
		var slots uint64
		for i := range w.slots {
			slots += w.slots[i][g].Load()
		}
		testsupport.Equal(t, w.sums[g].Load(), slots, "the sum of group %[2]d is %#[1]x, that of the slots %#[3]x", g, slots)
	}
	w.Advance(time.Hour)
	requests, failures := w.Tally()
	testsupport.True(t, requests == 0 && failures == 0, "%d of %d are left after an hour", failures, requests)
}

// TestWindowForgetsWithinItsNewLength checks that the window never forgets a request before the
// shorter length, and keeps none beyond the longer one.
func TestWindowForgetsWithinItsNewLength(t *testing.T) {
	var w Window
	w.Init(16*time.Second, 0)
	now := time.Duration(0)
	for range 160 {
		now += 100 * time.Millisecond
		w.Record(now, 0, false)
	}
	w.SetLength(1600*time.Millisecond, now)
	before, _ := w.Tally()
	for range 8 {
		now += 100 * time.Millisecond
		w.Advance(now)
	}
	half, _ := w.Tally()
	testsupport.True(t, half != 0 && half < before, "%d of %d are left after half of the new length", half, before)
	now += 900 * time.Millisecond
	w.Advance(now)
	if n, _ := w.Tally(); n != 0 {
		t.Errorf("%d are left after the new length", n)
	}
	w.Record(now, 0, true)
	w.SetLength(time.Hour, now)
	now += 59 * time.Minute / 2
	w.Advance(now)
	if n, failures := w.Tally(); n != 1 || failures != 1 {
		t.Errorf("%d of %d are left within the length that is longer now", failures, n)
	}
}
