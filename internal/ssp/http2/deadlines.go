package http2

import (
	"time"

	"adbuffer/internal/machine/alarm"
	"adbuffer/internal/wire/exchange"
)

// deadlines fails exchanges whose deadline has passed, with one timer for the whole connection. The timer is set to
// the earliest deadline; when it fires, it is set to the next deadline. Nearly all exchanges end before their
// deadlines, so the timer fires about once per timeout, however many exchanges there are. A timer for each exchange
// would cost 400 ns, to set and stop it, and to wait for both the timer and the response.
//
// Guarded by Conn.mu.
//
// A response that arrived before the deadline counts, even if the reader's goroutine reads it late.
// If the reader is busy, or bytes are unread, the deadline is checked a few more times before the
// exchange fails.
type deadlines struct {
	alarm      alarm.Alarm // calls Conn.expire
	lateChecks int         // number of checks since a deadline has passed
	quiet      bool        // the last check found no unhandled bytes
}

const (
	maxLateChecks  = 4
	lateCheckPause = time.Millisecond / 2
	quietPause     = 50 * time.Microsecond // the pause after a check that found no unhandled bytes
)

// expire runs when the timer fires. It fails the exchanges whose deadline has passed.
func (c *Conn) expire() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	d := &c.deadlines
	late, pause := c.lateLocked()
	looked := false
	var next time.Time
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		deadline := s.ex.Deadline
		if !deadline.After(now) {
			if !late {
				c.abandonLocked(s, exchange.ErrDeadline)
				continue
			}
			looked, deadline = true, now.Add(pause)
		}
		if next.IsZero() || deadline.Before(next) {
			next = deadline
		}
	}
	d.lateChecks++
	if !looked {
		d.lateChecks, d.quiet = 0, false
	}
	d.alarm.At = time.Time{}
	if !next.IsZero() {
		d.alarm.Set(next)
	}
	c.unlockAndWrite(nil, nil)
}

// lateLocked reports whether a response may have arrived that the reader has not handled, and the
// pause before the next check.
func (c *Conn) lateLocked() (late bool, pause time.Duration) {
	d := &c.deadlines
	switch {
	case d.lateChecks == maxLateChecks:
		return false, 0
	case c.reads.handling() || c.socket.HasInput():
		d.quiet = false
		return true, lateCheckPause
	case d.quiet:
		return false, 0
	}
	d.quiet = true
	return true, quietPause
}
