package lag

import "time"

// windowLength is the least length of a window. A window has two ticks or more, so that one late tick
// is not a standing lag: the machine was suspended, or a collection of garbage stopped the process.
const windowLength = 100 * time.Millisecond

// window finds the least lag of a tick within a window. If even that is long, requests wait all the
// time, and not only behind a burst: the rule of CoDel (RFC 8289, section 3.2). Meter.mu guards it.
type window struct {
	observe func(least, length time.Duration) // nil = none

	began time.Duration // since the meter's epoch, like the ticks
	least time.Duration
	ticks int
}

// OnWindow makes the meter call observe at the end of each window while it is in use: with the least
// lag of the window's ticks, and the window's length of 100 ms or more. observe must not call the
// meter. OnWindow must be called before the first Start.
func (m *Meter) OnWindow(observe func(least, length time.Duration)) { m.window.observe = observe }

func (w *window) begin(now time.Duration) { w.began, w.ticks = now, 0 }

func (w *window) tick(now, late time.Duration) {
	w.ticks++
	if w.ticks == 1 || late < w.least {
		w.least = late
	}
	if w.ticks < 2 || now-w.began < windowLength {
		return
	}
	if w.observe != nil {
		w.observe(w.least, now-w.began)
	}
	w.begin(now)
}
