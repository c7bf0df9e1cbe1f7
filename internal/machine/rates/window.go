// Package rates has a token bucket without a lock, and counters of requests and failures: over a sliding window of
// time, and in a row.
package rates

import (
	"sync"
	"sync/atomic"
	"time"
)

// Window counts the requests of each group within a sliding window of time, and those of them that failed. Times
// count from a moment that the caller chooses. A Window is safe for concurrent use, and takes a lock only when it
// moves.
type Window struct {
	sums    counts       // sums over all slots; for an instant higher, but never lower
	slot    atomic.Int64 // slots[slot%len(slots)] counts the current requests
	slotEnd atomic.Int64 // when the next slot begins, in ns
	slots   [slots]counts

	mu   sync.Mutex    // guards step; held while the window moves
	step time.Duration // the time of one slot
}

// slots is the number of slots of a window. Since the current slot is not full, the window spans between 15/16 and
// all of its length.
const slots = 16

type counts [allGroups]atomic.Uint64

// A count holds the number of requests in its low 32 bits, and the number of failed requests in its high 32 bits. 32
// bits are enough for 7 million requests a second over the longest window.
const (
	oneRequest = 1
	oneFailure = 1 << 32
)

// Init prepares an empty window.
func (w *Window) Init(length, now time.Duration) {
	w.step = stepFor(length)
	w.slotEnd.Store(int64(now + w.step))
}

func stepFor(length time.Duration) time.Duration { return max(length/slots, 1) }

// SetLength changes the length of the window. The counts stay, and expire within the new length.
func (w *Window) SetLength(length, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := stepFor(length)
	if step == w.step {
		return
	}
	w.advanceLocked(now)
	w.step = step
	w.slotEnd.Store(int64(now + step))
}

// Record counts a request of group g.
func (w *Window) Record(now time.Duration, g Group, failed bool) {
	w.Advance(now)
	t := uint64(oneRequest)
	if failed {
		t += oneFailure
	}
	// The sum is raised before the slot, so that a goroutine that clears the slot in between subtracts too little
	// from the sum rather than too much.
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

// Ratio returns the share of failures, without the groups that raise it most; see Group. It returns 0 if all groups
// together have fewer than minRequests requests. It may return 0 if the share is below minRatio, which is faster.
func (w *Window) Ratio(minRatio float64, minRequests int) float64 {
	requests, failures := w.Tally()
	if failures == 0 || requests < uint64(minRequests) || float64(failures) < minRatio*float64(requests) {
		return 0 // leaving groups out only lowers the share
	}
	var groups [allGroups]sum
	for g := range groups {
		t := w.sums[g].Load()
		groups[g] = sum{float64(t % oneFailure), float64(t / oneFailure)}
	}
	return trimmedRatio(&groups, float64(minRequests))
}

// Others returns the groups of clients that have requests in the window, and the number of requests of the groups
// that are not in s.
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

// Step returns the number of the current slot, counted since Init. It grows as the window moves.
func (w *Window) Step() int64 { return w.slot.Load() }

// Advance moves the window to now, and drops the requests that have left it. A time in the past changes nothing.
func (w *Window) Advance(now time.Duration) {
	if int64(now) < w.slotEnd.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(now)
}

func (w *Window) advanceLocked(now time.Duration) {
	late := now - time.Duration(w.slotEnd.Load())
	if late < 0 {
		return
	}
	current, steps := w.slot.Load(), int64(late/w.step)+1
	for i := current + 1; i <= current+min(steps, slots); i++ {
		w.clearSlot(i % slots)
	}
	w.slot.Store(current + steps)
	w.slotEnd.Add(steps * int64(w.step))
}

// Clear drops all requests.
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
