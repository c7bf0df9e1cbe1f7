// Package lag measures the time in which this process did not run although it had work: it had no CPU, or more
// goroutines were ready than it has cores. Timeouts of dials, handshakes and health checks leave this time out.
package lag

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// interval is the pause between two ticks. A tick costs about 1 µs of CPU; in an idle process it also costs a
	// wake-up.
	interval = 10 * time.Millisecond
	// calmInterval is the pause between two ticks while the meter only watches, and the last calmAfter ticks were on
	// time. A wake-up of an idle process costs 10 to 90 µs of CPU, so watching costs a thousandth of a core at most.
	calmInterval = 100 * time.Millisecond
	calmAfter    = 10
	// tolerance is how late a tick may be before the delay counts as lag, since timers are not exact.
	tolerance = 2 * time.Millisecond
)

// Meter measures the lag while it is in use (see Start) or watches (see Watch). At other times it has no goroutine. A
// nil Meter measures nothing: its lag is 0. The methods are safe for concurrent use.
//
// The meter's goroutine wakes for each tick, yields to the scheduler, and then measures how late the tick is. A
// goroutine that a timer wakes runs ahead of the ready goroutines; after the yield it has waited for all of them.
type Meter struct {
	yield func() // see New
	epoch time.Time

	// Both are in nanoseconds, and base counts from epoch. The lag so far is the larger of sum and now - base. sum is
	// written before base, and Lag reads base before sum, so Lag never counts a late tick twice.
	sum  atomic.Int64 // the lag up to the last tick
	base atomic.Int64 // when the next tick is due, minus sum; notDue if no tick is due

	mu          sync.Mutex // guards the fields below, and each change of sum and base
	users       int
	watching    bool
	onTimeTicks int           // how many ticks in a row were on time
	stop        chan struct{} // closed to stop the goroutine; nil if there is no goroutine
	window      window
}

const notDue = math.MaxInt64

// New returns a meter. yield must return after all goroutines that are ready have run; see Queue.Pass and
// runtime.Gosched.
func New(yield func()) *Meter {
	m := &Meter{yield: yield, epoch: time.Now()}
	m.base.Store(notDue)
	return m
}

// Start puts the meter into use: the lag is measured until each Start has had its Stop.
func (m *Meter) Start() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
	if m.users == 1 {
		m.stopTickingLocked() // replaces a goroutine whose next tick may be due in calmInterval only
		m.startTickingLocked()
	}
}

// Stop ends the use that one Start began.
func (m *Meter) Stop() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
	if m.users == 0 && !m.watching {
		m.stopTickingLocked()
	}
}

// Watch measures the lag in the background until stop is called. It may miss a lag of up to calmInterval, unless the
// process lags repeatedly.
func (m *Meter) Watch() (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watching = true
	if m.users == 0 {
		m.startTickingLocked()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watching = false
		if m.users == 0 {
			m.stopTickingLocked()
		}
	}
}

func (m *Meter) startTickingLocked() {
	m.stop, m.onTimeTicks = make(chan struct{}), 0
	if w := &m.window; w.observe != nil {
		now := time.Since(m.epoch)
		w.restart(now)
		w.timer = time.AfterFunc(interval+windowLength, m.endOverdueWindow)
		w.timerDue = now + interval + windowLength
	}
	m.base.Store(int64(time.Since(m.epoch)+interval) - m.sum.Load())
	go m.run(m.stop)
}

func (m *Meter) stopTickingLocked() {
	if m.stop == nil {
		return
	}
	m.tickLocked()
	m.base.Store(notDue)
	close(m.stop)
	m.stop = nil
	if m.window.timer != nil {
		m.window.timer.Stop()
	}
}

func (m *Meter) run(stop chan struct{}) {
	next := interval
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		m.yield()
		m.mu.Lock()
		if m.stop == stop {
			next = m.tickLocked()
		}
		m.mu.Unlock()
		timer.Reset(next)
	}
}

// tickLocked adds the delay of the current tick to sum, and returns the pause until the next tick.
func (m *Meter) tickLocked() (next time.Duration) {
	now, sum := int64(time.Since(m.epoch)), m.sum.Load()
	m.onTimeTicks++
	late := now - m.base.Load() - sum
	if late > int64(tolerance) {
		sum += late
		m.sum.Store(sum)
		m.onTimeTicks = 0
	}
	next = interval
	if m.users == 0 && m.onTimeTicks >= calmAfter {
		next = calmInterval
	}
	m.base.Store(now + int64(next) - sum)
	m.window.tick(time.Duration(now), time.Duration(max(0, late)), next)
	return next
}

// Lag returns the total lag since New, at the current time now. It never decreases.
func (m *Meter) Lag(now time.Time) time.Duration {
	if m == nil {
		return 0
	}
	base := m.base.Load()
	sum := m.sum.Load()
	if late := int64(now.Sub(m.epoch)) - base; late > sum+int64(tolerance) {
		return time.Duration(late)
	}
	return time.Duration(sum)
}

// Span measures the time since its start, and how much of it was lag.
type Span struct {
	meter      *Meter
	start      time.Time
	lagAtStart time.Duration // the meter's lag at start
}

// Begin returns a span that starts now. The meter must stay in use for as long as the span is.
func (m *Meter) Begin(now time.Time) Span { return Span{m, now, m.Lag(now)} }

// Again returns a span of the same meter that starts now.
func (s Span) Again(now time.Time) Span { return s.meter.Begin(now) }

// Elapsed returns the time since the start of s.
func (s Span) Elapsed(now time.Time) time.Duration { return now.Sub(s.start) }

// Lag returns the lag since the start of s.
func (s Span) Lag(now time.Time) time.Duration { return s.meter.Lag(now) - s.lagAtStart }

// Ran returns the time since the start of s, without the lag.
func (s Span) Ran(now time.Time) time.Duration { return now.Sub(s.start) - s.Lag(now) }
