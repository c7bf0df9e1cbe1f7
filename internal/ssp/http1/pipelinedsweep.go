package http1

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// sweep handles passed deadlines, cancelled requests and overdue responses, and sets the reader's
// next deadline. It returns errNoWaiters if the connection cannot be used any more.
func (r *reader) sweep() error {
	for {
		r.mu.Lock()
		r.admitLocked()
		r.sweepAgain = false
		writeErr := r.writeErr
		r.mu.Unlock()

		r.now = time.Now()
		if writeErr != nil {
			r.failUnsent(writeErr)
		}
		next := r.expire()
		if r.CloseReason() != exchange.NotClosed && !r.hasWaiting() {
			return errNoWaiters
		}

		r.mu.Lock()
		done := !r.sweepAgain
		if done {
			for i := range r.arrived {
				next = earlier(next, r.arrived[i].deadline)
			}
			r.setWakeLocked(next)
		}
		r.mu.Unlock()
		if done {
			return nil
		}
	}
}

// expire returns errors to callers whose request was cancelled or whose deadline has passed. If the oldest response,
// which delays all others, has not arrived within linger, expire sets the close reason. It returns when it must run
// next; zero = never.
func (r *reader) expire() (next time.Time) {
	for i := 0; i < r.n; i++ {
		e := r.at(i)
		var err, unsent error
		switch {
		case e.ex == nil:
			continue
		case e.ex.Context != nil && e.ex.Context.Err() != nil:
			err, unsent = exchange.ErrCancelled, exchange.ErrCancelled
		case !r.now.Before(e.deadline):
			err, unsent = exchange.ErrDeadline, exchange.ErrDeadlineNotSent
		default:
			next = earlier(next, e.deadline)
			continue
		}
		if withdrawn, ok := r.withdraw(i); ok {
			r.releaseEntry(&withdrawn, unsent)
			i--
			continue
		}
		r.abandon(e, err)
	}
	if !r.oldestAbandoned() || r.CloseReason() != exchange.NotClosed {
		return next
	}
	if !r.now.Before(r.lingerEnd()) && r.setCloseReason(exchange.ClosedTimeout) {
		r.owner.Changed()
	}
	r.noteOverdue()
	if r.overdue.Load() {
		r.withdrawUnsent()
	}
	if r.CloseReason() != exchange.NotClosed {
		return next
	}
	return earlier(next, r.abandonedEvent())
}

// withdraw removes the i-th oldest entry, unless a write has taken a byte of its request. No byte of a withdrawn
// request is ever sent.
func (r *reader) withdraw(i int) (entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := *r.at(i)
	if r.out == nil || e.start < r.takenBytes.Load() {
		return entry{}, false
	}
	size := r.withdrawLocked(&e)
	for j := i + 1; j < r.n; j++ {
		next := r.at(j)
		next.start, next.end = next.start-size, next.end-size
		*r.at(j - 1) = *next
	}
	r.n--
	*r.at(r.n) = entry{}
	for j := range r.arrived {
		r.arrived[j].start -= size
		r.arrived[j].end -= size
	}
	if e.start == 0 {
		r.first = r.firstLocked()
	}
	return e, true
}

// firstLocked returns the length of the request that will be the first of the connection; 0 if there is none.
func (r *reader) firstLocked() int {
	switch {
	case r.n > 0:
		return int(r.at(0).end)
	case len(r.arrived) > 0:
		return int(r.arrived[0].end)
	default:
		return 0
	}
}

// earlier returns the earlier of two times; a zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
