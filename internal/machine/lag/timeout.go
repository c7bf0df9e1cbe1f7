package lag

import (
	"context"
	"errors"
	"time"
)

// MostExtra is the longest time by which lag extends a timeout.
const MostExtra = 10 * time.Second

// ErrTooMuch is the error of a context of WithTimeout that lag would have extended by more than MostExtra. It does
// not blame the peer.
var ErrTooMuch = errors.New("adbuffer had too little CPU")

// WithTimeout is like context.WithTimeout, except that lag does not count: the context ends with
// context.DeadlineExceeded when this process has run for d. The context's Deadline is that of parent. The meter stays
// in use until the context has ended.
func (m *Meter) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	m.Start()
	ctx, cancel := context.WithCancelCause(parent)
	span := m.Begin(time.Now())
	go func() {
		defer m.Stop()
		if err := span.wait(ctx, d); err != nil {
			cancel(err)
		}
	}()
	return timeoutContext{ctx}, func() { cancel(nil) }
}

// wait waits until ctx has ended, and returns nil, or until s has run for d, and returns an error.
func (s Span) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Now()
		remaining := s.Left(d, now)
		switch {
		case remaining == 0 && s.lastChance(ctx):
			return nil
		case remaining == 0:
			return context.DeadlineExceeded
		case now.Sub(s.start) > d+MostExtra:
			return ErrTooMuch
		}
		timer.Reset(remaining)
	}
}

// lastChance lets all ready goroutines run, and then reports whether ctx has ended.
func (s Span) lastChance(ctx context.Context) bool {
	if s.meter != nil {
		s.meter.yield()
	}
	return ctx.Err() != nil
}

// Left returns how long to wait before asking again whether s has run for d; 0 means that it has.
//
// After a lag, d is extended by one interval, since the runtime may notice a ready socket that much later.
func (s Span) Left(d time.Duration, now time.Time) time.Duration {
	remaining := d - s.Ran(now)
	if s.Lag(now) == 0 {
		return max(remaining, 0)
	}
	remaining += interval
	if remaining <= tolerance {
		return 0
	}
	return max(remaining, interval) // remaining does not shrink while the process does not run
}

// timeoutContext is a context whose Err is its Cause.
type timeoutContext struct{ context.Context }

func (c timeoutContext) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.Cause(c.Context)
}
