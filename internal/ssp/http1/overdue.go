package http1

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// A response is overdue if its request was abandoned, and the SSP has had its usual time for it. A
// client that leaves early, or states a short deadline, makes no response overdue.
//
// While the oldest response is overdue, the connection offers no places. Requests of which no byte
// was sent go elsewhere. Requests that were sent wait for their own responses: HTTP/1.1 cannot show
// that the SSP has not processed them. The connection is open again once the response has arrived.
// It closes if the response does not arrive within linger.

// oldestAbandoned reports whether the caller of the oldest entry has returned.
func (r *reader) oldestAbandoned() bool { return r.n > 0 && r.at(0).ex == nil }

// overdueAt returns when the response of the abandoned oldest entry is overdue.
func (r *reader) overdueAt() time.Time {
	e := r.at(0)
	return earlier(later(e.deadline, e.acquired.Add(e.usual)), r.lingerEnd())
}

// lingerEnd returns when the reader closes the connection if the abandoned oldest entry has no
// complete response. Linger begins with the entry's deadline, or when it became the oldest if that
// is later.
func (r *reader) lingerEnd() time.Time {
	return later(r.at(0).deadline, r.oldestSince).Add(r.opts.Linger)
}

// abandonedEvent returns the time of the next sweep because of the abandoned oldest entry.
func (r *reader) abandonedEvent() time.Time {
	if r.overdue.Load() {
		return r.lingerEnd()
	}
	return r.overdueAt()
}

// noteOverdue sets whether the oldest response is overdue. It reports the begin to the owner. The
// owner learns of the end when the place of that response is freed.
func (r *reader) noteOverdue() {
	overdue := r.oldestAbandoned() && !r.now.Before(r.overdueAt())
	if r.overdue.Load() == overdue {
		return
	}
	r.overdue.Store(overdue)
	if overdue && r.CloseReason() == exchange.NotClosed {
		r.owner.Changed()
	}
}

// wakeForAbandoned makes the reader sweep when the abandoned oldest entry needs it.
func (r *reader) wakeForAbandoned() {
	if !r.oldestAbandoned() {
		return
	}
	at := r.abandonedEvent()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wakeAt.IsZero() || at.Before(r.wakeAt) {
		r.setWakeLocked(at)
	}
}

// withdrawUnsent returns errBehindOverdue to the callers whose requests wait for the connection's
// first response, or for the socket. They are the newest entries.
func (r *reader) withdrawUnsent() {
	r.mu.Lock()
	r.admitLocked()
	r.mu.Unlock()
	for r.n > 1 {
		e, ok := r.withdraw(r.n - 1)
		if !ok {
			return
		}
		r.releaseEntry(&e, errBehindOverdue)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
