package http1

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// A response is overdue if its request was abandoned, and the SSP has had the usual time for a response. So a client
// that disconnects early, or states a short deadline, does not make a response overdue.
//
// While the oldest response is overdue, the connection offers no places. Requests of which no byte was sent are sent
// on other connections. Requests that were sent wait for their own responses: HTTP/1.1 cannot show that the SSP has
// not processed them. The connection offers places again once the overdue response has arrived. If the response does
// not arrive within linger, the connection is closed.

// oldestAbandoned reports whether the caller of the oldest entry has returned.
func (r *reader) oldestAbandoned() bool { return r.n > 0 && r.at(0).ex == nil }

// overdueAt returns when the response of the abandoned oldest entry becomes overdue.
func (r *reader) overdueAt() time.Time {
	e := r.at(0)
	return earlier(later(e.deadline, e.acquired.Add(e.usual)), r.lingerEnd())
}

// lingerEnd returns when the reader closes the connection if the response of the abandoned oldest entry is still
// incomplete. The time of linger begins with the entry's deadline, or when the entry became the oldest, whichever is
// later.
func (r *reader) lingerEnd() time.Time {
	return later(r.at(0).deadline, r.oldestSince).Add(r.opts.Linger)
}

// abandonedEvent returns when the abandoned oldest entry next needs a sweep.
func (r *reader) abandonedEvent() time.Time {
	if r.overdue.Load() {
		return r.lingerEnd()
	}
	return r.overdueAt()
}

// noteOverdue updates whether the oldest response is overdue. If it has become overdue, noteOverdue calls
// Owner.Changed. The end needs no call, since the place of the response is freed then.
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

// wakeForAbandoned ensures that the reader sweeps when the abandoned oldest entry needs it.
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

// withdrawUnsent returns errBehindOverdue to callers of whose requests no byte was sent, because the requests wait
// for the connection's first response or for room in the socket. These requests are the newest entries.
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
