// Package lag measures the time in which this process did not run although it had work: it had no
// CPU, or more goroutines were ready than it has cores. Such time counts against no dial and no
// handshake.
package lag

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// interval is the pause between two ticks. A tick takes about 1 µs, and the wake-up of a process that
	// is otherwise idle.
	interval = 10 * time.Millisecond
	// tolerance is how late a tick may be without lag, since timers are not exact.
	tolerance = 2 * time.Millisecond
)

// Meter measures the lag while it is in use, see Start. At other times it has no goroutine. A nil
// Meter measures nothing: its lag is 0. The methods are safe for concurrent use.
//
// A goroutine wakes for each tick, yields to the scheduler, and looks how late it is. A goroutine
// that a timer wakes runs ahead of others; after a yield it stands behind all that are ready.
type Meter struct {
	yield func() // see New
	epoch time.Time

	// Both are in ns since epoch. The lag so far is the higher of sum and now - base. sum changes
	// before base, and Lag reads base before sum. So Lag never counts a late tick twice.
	sum  atomic.Int64 // the lag until the last tick
	base atomic.Int64 // when the next tick is due, minus sum; notDue if the meter is not in use

	mu    sync.Mutex // held by each change of the other fields
	users int
	ended chan struct{} // closed when the meter is no longer in use; nil then
}

const notDue = math.MaxInt64

// New returns a meter. yield returns when all goroutines that are ready have run; outside of tests
// it is runtime.Gosched.
func New(yield func()) *Meter {
	m := &Meter{yield: yield, epoch: time.Now()}
	m.base.Store(notDue)
	return m
}

// Start begins a use. From then until the last Stop the lag is measured.
func (m *Meter) Start() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
	if m.users == 1 {
		m.ended = make(chan struct{})
		m.base.Store(int64(time.Since(m.epoch)+interval) - m.sum.Load())
		go m.run(m.ended)
	}
}

// Stop ends a use. Each Start needs one Stop.
func (m *Meter) Stop() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
	if m.users == 0 {
		m.tickLocked()
		m.base.Store(notDue)
		close(m.ended)
		m.ended = nil
	}
}

func (m *Meter) run(ended chan struct{}) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return
		case <-timer.C:
		}
		m.yield()
		m.mu.Lock()
		if m.ended == ended {
			m.tickLocked()
		}
		m.mu.Unlock()
		timer.Reset(interval)
	}
}

// tickLocked adds the current lag to sum.
func (m *Meter) tickLocked() {
	now, sum := int64(time.Since(m.epoch)), m.sum.Load()
	if late := now - m.base.Load() - sum; late > int64(tolerance) {
		sum += late
		m.sum.Store(sum)
	}
	m.base.Store(now + int64(interval) - sum)
}

// Lag returns the lag since New. It never falls. now is the current time.
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

// Span is a time from its begin on, as this process saw it.
type Span struct {
	meter *Meter
	began time.Time
	lag   time.Duration // until began
}

// Begin returns a span that begins now. The meter must be in use until the span's end.
func (m *Meter) Begin(now time.Time) Span { return Span{m, now, m.Lag(now)} }

// Again returns a span that begins now.
func (s Span) Again(now time.Time) Span { return s.meter.Begin(now) }

// Elapsed returns the time since the begin of s.
func (s Span) Elapsed(now time.Time) time.Duration { return now.Sub(s.began) }

// Lag returns the lag since the begin of s.
func (s Span) Lag(now time.Time) time.Duration { return s.meter.Lag(now) - s.lag }

// Ran returns the time since the begin of s, without its lag.
func (s Span) Ran(now time.Time) time.Duration { return now.Sub(s.began) - s.Lag(now) }
