package lag

import "time"

// windowLength is the least length of a window. A window has two ticks or more, so that one late tick
// is not a standing lag: the machine was suspended, or a collection of garbage stopped the process.
const windowLength = 100 * time.Millisecond

// window finds the least lag of a tick within a window. If even that is long, requests wait all the
// time, and not only behind a burst: the rule of CoDel (RFC 8289, section 3.2). Meter.mu guards it.
//
// Under a lag of a second no tick ends within a window. The lag of the tick that is due is at least its
// delay so far, and it counts instead. So a window takes 100 ms then too: a timer's function is not
// behind the goroutines that are ready.
type window struct {
	observe func(least, length time.Duration) // nil = none
	timer   *time.Timer                       // ends a window without a tick

	// Times are since the meter's epoch, like the ticks.
	began  time.Duration
	ends   time.Duration // when timer is due
	least  time.Duration
	ticks  int
	last   time.Duration // the lag of the last tick
	lastAt time.Duration
}

// OnWindow makes the meter call observe at the end of each window while it is in use: with the least
// lag of the window, and the window's length of 100 ms or more. observe must not call the meter.
// OnWindow must be called before the first Start.
func (m *Meter) OnWindow(observe func(least, length time.Duration)) { m.window.observe = observe }

func (w *window) begin(now time.Duration) { w.began, w.ticks = now, 0 }

// tick notes a tick that came late; the next one is due in next.
func (w *window) tick(now, late, next time.Duration) {
	if w.observe == nil {
		return
	}
	w.arm(now, next+windowLength)
	w.last, w.lastAt = late, now
	w.ticks++
	if w.ticks == 1 || late < w.least {
		w.least = late
	}
	if w.ticks < 2 || now-w.began < windowLength {
		return
	}
	w.observe(w.least, now-w.began)
	w.begin(now)
}

func (w *window) arm(now, after time.Duration) {
	w.ends = now + after
	w.timer.Reset(after)
}

// overdue ends a window if its tick is late by windowLength.
func (m *Meter) overdue() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended == nil {
		return
	}
	w, now := &m.window, time.Since(m.epoch)
	late := now - time.Duration(m.base.Load()+m.sum.Load())
	if late < windowLength { // a tick came meanwhile
		return
	}
	// If this function is late too, the process did not run, and the tick is due only now.
	if now-w.ends < windowLength/2 {
		// A queue of requests shrinks by 1 ms in 1 ms, and not faster.
		w.observe(max(late, w.last-(now-w.lastAt)), now-w.began)
		w.begin(now)
	}
	w.arm(now, windowLength)
}
