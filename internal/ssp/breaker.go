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
	step time.Duration // Window / breakerSlots

	sum   atomic.Uint64 // tally of all slots; ahead of them for an instant, never behind
	slot  atomic.Int64  // the step that it is now; slots[slot % breakerSlots] counts it
	slots [breakerSlots]atomic.Uint64
	mu    sync.Mutex // held while the window moves on

	shed, wouldShed atomic.Uint64
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

func (b *breaker) init(o BreakerOptions) {
	b.opts, b.step = o, max(o.Window/breakerSlots, 1)
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

func (b *breaker) tally() (requests, failures uint64) {
	t := b.sum.Load()
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
func (b *breaker) advance(now time.Duration) {
	n := int64(now / b.step)
	if n <= b.slot.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.slot.Load()
	for i := max(was+1, n-breakerSlots+1); i <= n; i++ {
		b.sum.Add(-b.slots[i%breakerSlots].Swap(0))
	}
	b.slot.Store(max(n, was))
}
