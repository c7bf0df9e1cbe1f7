// Package rates limits a rate by a token bucket, without a lock, and counts requests and failures
// over a sliding window of time.
package rates

import (
	"sync"
	"sync/atomic"
	"time"
)

// Window counts the requests of the last Length of time by their group, and how many of them failed.
// Times count from a moment that the caller chooses. It is safe for concurrent use, and takes a lock
// only when the window moves.
type Window struct {
	sums  counts       // of all slots; for an instant they may be higher, but never lower
	slot  atomic.Int64 // slots[slot % Slots] counts the current requests
	until atomic.Int64 // ns; when the next slot begins
	slots [slots]counts

	mu   sync.Mutex    // held while the window moves; guards step
	step time.Duration // its length / Slots
}

// slots is the number of steps in which the window moves: it spans from 15/16 to all of its length.
const slots = 16

type counts [allGroups]atomic.Uint64

// A count has the number of requests in its low bits, and the number of failed ones above. 32 bits
// are enough for 7 million requests a second over the longest window.
const (
	oneRequest = 1
	oneFailure = 1 << 32
)

// Init prepares an empty window.
func (w *Window) Init(length, now time.Duration) {
	w.step = stepOf(length)
	w.until.Store(int64(now + w.step))
}

func stepOf(length time.Duration) time.Duration { return max(length/slots, 1) }

// SetLength changes how long the window is. Its counts stay, and expire within the new length.
func (w *Window) SetLength(length, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := stepOf(length)
	if step == w.step {
		return
	}
	w.advanceLocked(now)
	w.step = step
	w.until.Store(int64(now + step))
}

// Record counts a request of g, and whether it failed.
func (w *Window) Record(now time.Duration, g Group, failed bool) {
	w.Advance(now)
	t := uint64(oneRequest)
	if failed {
		t += oneFailure
	}
	// The sum first: a goroutine that clears the slot in between subtracts too little from the sum
	// rather than too much.
	w.sums[g].Add(t)
	w.slots[w.slot.Load()%slots][g].Add(t)
}

// Tally returns how many requests are in the window, and how many of them failed.
func (w *Window) Tally() (requests, failures uint64) {
	t := uint64(0)
	for g := range w.sums {
		t += w.sums[g].Load()
	}
	return t % oneFailure, t / oneFailure
}

// Ratio returns the share of failures that counts: without the groups that raise it most, if the
// other groups have at least enough requests. See Group. It returns 0 if all groups together have
// fewer, and may do so if the share is below least.
func (w *Window) Ratio(least float64, enough int) float64 {
	requests, failures := w.Tally()
	if failures == 0 || requests < uint64(enough) || float64(failures) < least*float64(requests) {
		return 0 // this is fast; and the share that counts is not higher than that of all failures
	}
	var groups [allGroups]sum
	for g := range groups {
		t := w.sums[g].Load()
		groups[g] = sum{float64(t % oneFailure), float64(t / oneFailure)}
	}
	return trimmedRatio(&groups, float64(enough))
}

// Others returns the groups of clients that sent requests, and the number of requests of those that
// are not in s.
func (w *Window) Others(s Groups) (all Groups, requests uint64) {
	for g := range Ours {
		if n := w.sums[g].Load() % oneFailure; n > 0 {
			all |= g.set()
			if s&g.set() == 0 {
				requests += n
			}
		}
	}
	return all, requests
}

// Step returns the number of the step that counts requests now. It changes as the window moves on.
func (w *Window) Step() int64 { return w.slot.Load() }

// Advance moves the window to now, and forgets older requests. A time in the past changes nothing.
func (w *Window) Advance(now time.Duration) {
	if int64(now) < w.until.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(now)
}

func (w *Window) advanceLocked(now time.Duration) {
	late := now - time.Duration(w.until.Load())
	if late < 0 {
		return
	}
	was, steps := w.slot.Load(), int64(late/w.step)+1
	for i := was + 1; i <= was+min(steps, slots); i++ {
		w.clearSlot(i % slots)
	}
	w.slot.Store(was + steps)
	w.until.Add(steps * int64(w.step))
}

// Clear forgets all requests.
func (w *Window) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range int64(slots) {
		w.clearSlot(i)
	}
}

func (w *Window) clearSlot(i int64) {
	for g := range w.slots[i] {
		if t := w.slots[i][g].Swap(0); t != 0 {
			w.sums[g].Add(-t)
		}
	}
}
