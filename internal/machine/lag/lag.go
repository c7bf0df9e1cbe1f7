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
	// calmInterval is the pause while the meter only watches, and the last calmAfter ticks were not late.
	// A wake-up of an idle process takes 10 to 90 µs, so a watch takes a thousandth of a core at most.
	calmInterval = 100 * time.Millisecond
	calmAfter    = 10
	// tolerance is how late a tick may be without lag, since timers are not exact.
	tolerance = 2 * time.Millisecond
)

// Meter measures the lag while it is in use, see Start, or watches, see Watch. At other times it has no
// goroutine. A nil Meter measures nothing: its lag is 0. The methods are safe for concurrent use.
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

	mu       sync.Mutex // held by each change of the other fields
	users    int
	watching bool
	intime   int           // ticks in a row that were not late
	ended    chan struct{} // closed to end the goroutine; nil if there is none
	window   window
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
		m.endLocked() // its tick may be due late
		m.beginLocked()
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
	if m.users == 0 && !m.watching {
		m.endLocked()
	}
}

// Watch measures the lag in the background until the function that it returns is called. A lag of up to
// 100 ms may stay unseen, unless the process lags again and again.
func (m *Meter) Watch() (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watching = true
	if m.users == 0 {
		m.beginLocked()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watching = false
		if m.users == 0 {
			m.endLocked()
		}
	}
}

func (m *Meter) beginLocked() {
	m.ended, m.intime = make(chan struct{}), 0
	if w := &m.window; w.observe != nil {
		now := time.Since(m.epoch)
		w.begin(now)
		w.timer = time.AfterFunc(interval+windowLength, m.overdue)
		w.ends = now + interval + windowLength
	}
	m.base.Store(int64(time.Since(m.epoch)+interval) - m.sum.Load())
	go m.run(m.ended)
}

func (m *Meter) endLocked() {
	if m.ended == nil {
		return
	}
	m.tickLocked()
	m.base.Store(notDue)
	close(m.ended)
	m.ended = nil
	if m.window.timer != nil {
		m.window.timer.Stop()
	}
}

func (m *Meter) run(ended chan struct{}) {
	next := interval
	timer := time.NewTimer(next)
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
			next = m.tickLocked()
		}
		m.mu.Unlock()
		timer.Reset(next)
	}
}

// tickLocked adds the current lag to sum, and returns the pause until the next tick.
func (m *Meter) tickLocked() (next time.Duration) {
	now, sum := int64(time.Since(m.epoch)), m.sum.Load()
	m.intime++
	late := now - m.base.Load() - sum
	if late > int64(tolerance) {
		sum += late
		m.sum.Store(sum)
		m.intime = 0
	}
	next = interval
	if m.users == 0 && m.intime >= calmAfter {
		next = calmInterval
	}
	m.base.Store(now + int64(next) - sum)
	m.window.tick(time.Duration(now), time.Duration(max(0, late)), next)
	return next
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
