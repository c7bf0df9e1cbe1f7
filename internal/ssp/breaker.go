package ssp

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/upstream"
)

// breaker sheds a share of the requests to an SSP that fails. There is no open
// or closed: the share rises with the ratio of failures in the window, and some
// requests always pass, so that it sees when the SSP is back.
//
//	shed
//	1 - min_probe ┤        ╱
//	              │      ╱
//	            0 ┼────╱───┬── failures / requests
//	              failure_ratio  1
//
// What is shed does not count, and so neither opens nor closes it. Times are
// since the SSP was made. It is safe for concurrent use.
type breaker struct {
	opts BreakerOptions
	*window
	*shedCounts
}

// shedCounts count the requests that were shed, and those that would have been
// in a dry run.
type shedCounts struct{ shed, wouldShed atomic.Uint64 }

// window is what a breaker remembers: a tally for each step of the time.
type window struct {
	sum   atomic.Uint64 // tally of all slots; ahead of them for an instant, never behind
	slot  atomic.Int64  // slots[slot % breakerSlots] counts what comes now
	until atomic.Int64  // ns; when the next slot's turn is
	slots [breakerSlots]atomic.Uint64

	mu   sync.Mutex    // held while the window moves on, guards step
	step time.Duration // its length / breakerSlots
}

// breakerSlots is in how many steps the window moves: it spans from
// 15/16 to all of `window`.
const breakerSlots = 16

// A tally is a number of requests, and above it the number of those that
// failed. 32 bits are enough for 7 million requests a second over the longest
// window.
const (
	oneRequest = 1
	oneFailure = 1 << 32
)

func (w *window) init(length, now time.Duration) {
	w.step = stepOf(length)
	w.until.Store(int64(now + w.step))
}

func stepOf(length time.Duration) time.Duration { return max(length/breakerSlots, 1) }

// setLength changes how long the window is. What it holds stays, and is
// forgotten within the new length.
func (w *window) setLength(length, now time.Duration) {
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

// admit draws whether a request may pass, and says why where it may not.
func (b *breaker) admit(now time.Duration) *upstream.Error {
	if !b.opts.Enabled {
		return nil
	}
	b.advance(now)
	if b.sum.Load() < oneFailure {
		return nil // nothing failed: the common case
	}
	requests, failures := b.tally()
	share := b.share(requests, failures)
	if share <= 0 || rand.Float64() >= share {
		return nil
	}
	if b.opts.DryRun {
		b.wouldShed.Add(1)
		return nil
	}
	b.shed.Add(1)
	return &upstream.Error{
		Outcome: upstream.BreakerOpen, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("%d of the last %d requests to it failed, within %v, of which %.0f %% are tolerated; %.0f %% of the requests are shed; see ssps[].breaker",
			failures, requests, b.opts.Window, 100*b.opts.FailureRatio, 100*share),
	}
}

// record counts a request that was sent, and whether it failed.
func (b *breaker) record(now time.Duration, failed bool) {
	if !b.opts.Enabled {
		return
	}
	b.advance(now)
	t := uint64(oneRequest)
	if failed {
		t += oneFailure
	}
	// The sum first, so that whoever clears the slot in between takes too
	// little from the sum rather than too much.
	b.sum.Add(t)
	b.slots[b.slot.Load()%breakerSlots].Add(t)
}

// shedRatio is the share of requests that is shed now, or would be in a dry
// run.
func (b *breaker) shedRatio(now time.Duration) float64 {
	if !b.opts.Enabled {
		return 0
	}
	b.advance(now)
	return b.share(b.tally())
}

func (w *window) tally() (requests, failures uint64) {
	t := w.sum.Load()
	return t % oneFailure, t / oneFailure
}

func (b *breaker) share(requests, failures uint64) float64 {
	o := &b.opts
	if requests == 0 || requests < uint64(o.MinRequests) {
		return 0
	}
	ratio := float64(failures) / float64(requests)
	if ratio <= o.FailureRatio {
		return 0
	}
	return (ratio - o.FailureRatio) / (1 - o.FailureRatio) * (1 - o.MinProbe)
}

// advance moves the window to now, and forgets what is behind it. A time that
// has passed changes nothing.
func (w *window) advance(now time.Duration) {
	if int64(now) < w.until.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(now)
}

func (w *window) advanceLocked(now time.Duration) {
	late := now - time.Duration(w.until.Load())
	if late < 0 {
		return
	}
	was, steps := w.slot.Load(), int64(late/w.step)+1
	for i := was + 1; i <= was+min(steps, breakerSlots); i++ {
		w.sum.Add(-w.slots[i%breakerSlots].Swap(0))
	}
	w.slot.Store(was + steps)
	w.until.Add(steps * int64(w.step))
}
