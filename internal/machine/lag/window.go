package lag

import "time"

// windowLength is the shortest length of a window. A window has at least two ticks, so that one late tick makes no
// standing lag: it may mean that the machine was suspended, or that a garbage collection stopped the process.
const windowLength = 100 * time.Millisecond

// window finds the standing lag: the smallest lag of all ticks of a window. If even the smallest lag is long,
// requests wait all the time, and not only behind a burst. This is the rule of CoDel (RFC 8289, section 3.2).
// Meter.mu guards window.
//
// Under a lag of a second, no tick happens within 100 ms. Then timer ends the window, and the delay so far of the
// tick that is due counts as its lag. The timer's function is on time, since it does not wait behind the ready
// goroutines.
type window struct {
	observe func(minLag, length time.Duration) // called at the end of each window; nil = windows are not used
	timer   *time.Timer                        // calls endOverdueWindow if no tick comes

	// Times count from Meter.epoch.
	start      time.Duration
	timerDue   time.Duration // when timer fires
	minLag     time.Duration
	ticks      int
	lastLag    time.Duration // the lag of the last tick
	lastTickAt time.Duration
}

// OnWindow makes the meter call observe at the end of each window, with the smallest lag of the window's ticks and
// the length of the window, which is 100 ms or more. observe must not call the meter. OnWindow must be called before
// the first Start or Watch.
func (m *Meter) OnWindow(observe func(minLag, length time.Duration)) { m.window.observe = observe }

func (w *window) restart(now time.Duration) { w.start, w.ticks = now, 0 }

// tick records a tick that was late by late. The next tick is due after next.
func (w *window) tick(now, late, next time.Duration) {
	if w.observe == nil {
		return
	}
	w.arm(now, next+windowLength)
	w.lastLag, w.lastTickAt = late, now
	w.ticks++
	if w.ticks == 1 || late < w.minLag {
		w.minLag = late
	}
	if w.ticks < 2 || now-w.start < windowLength {
		return
	}
	w.observe(w.minLag, now-w.start)
	w.restart(now)
}

func (w *window) arm(now, after time.Duration) {
	w.timerDue = now + after
	w.timer.Reset(after)
}

// endOverdueWindow is called by window.timer. It ends the window if the tick that is due is late by windowLength or
// more.
func (m *Meter) endOverdueWindow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop == nil {
		return
	}
	w, now := &m.window, time.Since(m.epoch)
	late := now - time.Duration(m.base.Load()+m.sum.Load())
	if late < windowLength { // a tick came before this function had the lock
		return
	}
	// If this function is late too, the process was stopped as a whole, which says nothing about ready goroutines.
	if now-w.timerDue < windowLength/2 {
		// The lag of the last tick, minus the time since, is a lower bound: a queue shrinks by at most 1 ms in 1 ms.
		w.observe(max(late, w.lastLag-(now-w.lastTickAt)), now-w.start)
		w.restart(now)
	}
	w.arm(now, windowLength)
}
