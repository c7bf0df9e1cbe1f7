package lag

import (
	"context"
	"errors"
	"time"
)

// MostExtra bounds by how much the lag extends a timeout.
const MostExtra = 10 * time.Second

// ErrTooMuch is the error of a context of WithTimeout that would have been extended by more than
// MostExtra. It says nothing about the peer.
var ErrTooMuch = errors.New("adbuffer had too little CPU")

// WithTimeout is context.WithTimeout, except that lag does not count: the context ends when this
// process has run for d, with the error context.DeadlineExceeded. It has no Deadline of its own. The
// meter is in use until the caller cancels the context.
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

// wait returns nil when ctx has ended, and an error when d is over.
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
		left := s.Left(d, now)
		switch {
		case left == 0 && s.lastChance(ctx):
			return nil
		case left == 0:
			return context.DeadlineExceeded
		case now.Sub(s.began) > d+MostExtra:
			return ErrTooMuch
		}
		timer.Reset(left)
	}
}

// lastChance lets all goroutines run that are ready, and reports whether ctx has ended then.
func (s Span) lastChance(ctx context.Context) bool {
	if s.meter != nil {
		s.meter.yield()
	}
	return ctx.Err() != nil
}

// Left returns how long to wait before the next look whether s has run for d; 0 means that it has.
//
// If there was lag, d is over one interval later: the runtime may find out that late that a socket is
// ready.
func (s Span) Left(d time.Duration, now time.Time) time.Duration {
	left := d - s.Ran(now)
	if s.Lag(now) == 0 {
		return max(left, 0)
	}
	left += interval
	if left <= tolerance {
		return 0
	}
	return max(left, interval) // while the process does not run, left does not fall
}

// timeoutContext is a context whose error is the cause of its end.
type timeoutContext struct{ context.Context }

func (c timeoutContext) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.Cause(c.Context)
}
