package lag

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

const msec = time.Millisecond

// starved is a meter in a bubble. While it starves, goroutines that yield do not run.
type starved struct {
	*Meter
	until atomic.Pointer[time.Time]
}

func newStarved() *starved {
	s := new(starved)
	s.Meter = New(func() { time.Sleep(time.Until(*s.until.Load())) })
	s.starve(0)
	return s
}

func (s *starved) starve(d time.Duration) {
	at := time.Now().Add(d)
	s.until.Store(&at)
}

func wantLag(t *testing.T, s Span, ran, lag time.Duration) {
	t.Helper()
	now := time.Now()
	testsupport.True(t, s.Ran(now) == ran && s.Lag(now) == lag, "the span ran %v with a lag of %v, want %v and %v", s.Ran(now), s.Lag(now), ran, lag)
}

// While the process does not run, Ran does not advance, also before the late tick.
func TestASpanDoesNotCountTheLag(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		m := newStarved()
		m.Start()
		defer m.Stop()
		time.Sleep(5 * msec)
		s := m.Begin(time.Now())
		time.Sleep(100 * msec) // ticks are at 10, 20, … 100 ms
		wantLag(t, s, 100*msec, 0)
		m.starve(605 * msec)
		time.Sleep(6 * msec) // the tick at 110 ms is a little late
		wantLag(t, s, 106*msec, 0)
		inside := m.Begin(time.Now())
		time.Sleep(494 * msec)
		wantLag(t, s, 105*msec, 495*msec)
		time.Sleep(110*msec + 1)
		synctest.Wait()
		wantLag(t, s, 110*msec+1, 600*msec) // the tick at 110 ms came at 710 ms
		wantLag(t, inside, 4*msec+1, 600*msec)
		time.Sleep(20 * msec)
		wantLag(t, s, 130*msec+1, 600*msec)
	})
}

// Without a user there is no goroutine, and the lag stays.
func TestAMeterWithoutAUserMeasuresNothing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		m := newStarved()
		for range 3 {
			before := m.Lag(time.Now())
			m.Start()
			m.starve(100 * msec)
			time.Sleep(51 * msec)
			m.Stop() // during a tick
			time.Sleep(time.Hour)
			testsupport.Equal(t, m.Lag(time.Now())-before, 41*msec, "the lag is %v")
		}
		var none *Meter
		none.Start()
		wantLag(t, none.Begin(time.Now()), 0, 0)
		none.Stop()
	})
}

func TestATimeoutIsExtendedByTheLag(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		m := newStarved()
		for name, c := range map[string]struct{ starve, least, most time.Duration }{
			"no lag":      {0, 100 * msec, 100 * msec},
			"a short lag": {30 * msec, 120 * msec, 150 * msec},
			"a long lag":  {9 * time.Second, 9090 * msec, 9120 * msec},
		} {
			began := time.Now()
			m.starve(c.starve)
			ctx, cancel := m.WithTimeout(t.Context(), 100*msec)
			<-ctx.Done()
			if took := time.Since(began); took < c.least || took > c.most || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("%s: ended after %v with %v", name, took, ctx.Err())
			}
			cancel()
		}
		began := time.Now()
		m.starve(time.Hour)
		ctx, cancel := m.WithTimeout(t.Context(), 100*msec)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took < MostExtra || took > MostExtra+time.Second || !errors.Is(ctx.Err(), ErrTooMuch) {
			t.Errorf("with a lag without end, the context ended after %v with %v", took, ctx.Err())
		}
		time.Sleep(time.Hour)
	})
}

func TestATimeoutEndsWithItsParentOrItsCancel(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		m := newStarved()
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := m.WithTimeout(parent, time.Hour)
		testsupport.True(t, ctx.Err() == nil, "%v", ctx.Err())
		end()
		<-ctx.Done()
		testsupport.Equal(t, ctx.Err(), context.Canceled, "ended by its parent: %v")
		cancel()
		ctx, cancel = m.WithTimeout(t.Context(), time.Hour)
		cancel()
		cancel()
		testsupport.Equal(t, ctx.Err(), context.Canceled, "cancelled: %v")
	})
}

// With real goroutines that are always ready, the measure shows how long a goroutine waits for its
// turn, though one that a timer wakes runs ahead of the others.
func TestBusyGoroutinesAreLag(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	m := New(runtime.Gosched)
	m.Start()
	defer m.Stop()
	done := make(chan struct{})
	defer close(done)
	for range 20 {
		go func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for end := time.Now().Add(5 * msec); time.Now().Before(end); {
				}
				runtime.Gosched()
			}
		}()
	}
	s := m.Begin(time.Now())
	testsupport.Eventually(t, "most of the time is lag", func() bool {
		now := time.Now()
		return s.Lag(now) > 500*msec && s.Ran(now) < s.Lag(now)
	})
}

// A watch ticks each 100 ms while nothing is late, and each 10 ms after a late tick and for a user.
func TestAWatchTicksRarelyUntilItLags(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newStarved()
		var ticks atomic.Int32
		yield := s.yield
		s.yield = func() { ticks.Add(1); yield() }
		during := func(d time.Duration) int {
			before := ticks.Load()
			time.Sleep(d)
			synctest.Wait()
			return int(ticks.Load() - before)
		}
		stop := s.Watch()
		during(time.Second)
		testsupport.Equal(t, during(10*time.Second), 100, "%d ticks in 10 s without lag")
		span := s.Begin(time.Now())
		s.starve(600 * msec)
		testsupport.Between(t, during(700*msec), 5, 12, "%d ticks around 600 ms of lag")
		testsupport.Between(t, span.Lag(time.Now()), 500*msec, 600*msec, "the lag is %v, want 500 to 600 ms")
		during(time.Second)
		s.Start()
		testsupport.Equal(t, during(time.Second), 100, "%d ticks in a second for a user")
		s.Stop()
		during(time.Second)
		testsupport.Equal(t, during(time.Second), 10, "%d ticks in a second after the user")
		stop()
		testsupport.Equal(t, during(time.Hour), 0, "%d ticks after the watch")
	})
}
