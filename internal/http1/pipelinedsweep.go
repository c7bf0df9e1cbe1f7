package http1

import (
	"time"

	"adbuffer/internal/upstream"
)

// sweep does what somebody's deadline, a nudge, or an answer that is overdue
// asks for, and sets the deadline for the next time. errHopeless: the connection
// is of no more use.
func (r *reader) sweep() error {
	for {
		r.mu.Lock()
		r.admitLocked()
		r.nudged = false
		writeErr := r.writeErr
		r.mu.Unlock()

		r.now = time.Now()
		if writeErr != nil {
			r.dropUnsent(writeErr)
		}
		next := r.letGo()
		if r.CloseReason() != upstream.NotClosed && !r.awaited() {
			return errHopeless
		}

		r.mu.Lock()
		done := !r.nudged
		if done {
			for i := range r.arrived {
				next = earlier(next, r.arrived[i].deadline)
			}
			r.wakeLocked(next)
		}
		r.mu.Unlock()
		if done {
			return nil
		}
	}
}

// letGo ends what its callers need not wait for any more, retires the
// connection if the answer that holds up all others is overdue, and returns
// when to look again, zero for never.
func (r *reader) letGo() (next time.Time) {
	for i := range r.n {
		e := r.at(i)
		switch {
		case e.ex == nil:
		case e.ex.Context != nil && e.ex.Context.Err() != nil:
			r.leave(e, upstream.ErrCancelled)
		case !r.now.Before(e.deadline):
			r.leave(e, upstream.ErrDeadline)
		default:
			next = earlier(next, e.deadline)
		}
	}
	if r.n == 0 || r.at(0).ex != nil || r.CloseReason() != upstream.NotClosed {
		return next
	}
	overdue := r.at(0).deadline.Add(r.opts.Linger)
	if r.now.Before(overdue) {
		return earlier(next, overdue)
	}
	if r.stop(upstream.ClosedTimeout) {
		r.owner.Changed()
	}
	return next
}

// earlier returns the earlier of two times, of which the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
