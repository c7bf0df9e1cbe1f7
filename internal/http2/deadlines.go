package http2

import (
	"crypto/tls"
	"net"
	"time"

	"adbuffer/internal/upstream"
)

// deadlines ends exchanges whose time is up. One timer does it for all of a
// connection: it is set to the earliest deadline when it is not set, or to a
// later one, and when it fires looks for the next. Nearly all exchanges end
// before their deadlines, so it fires once in as long as an exchange has, and
// an exchange costs no timer of its own (400 ns to set, to stop, and to wait
// for both it and the answer).
//
// Conn.mu guards it.
//
// A response that came before the deadline counts, also where the reader's
// goroutine is late to read it. If the reader is busy, or bytes have come that it
// has not read, the exchanges whose time is up get a few more checks. One check that
// finds neither proves nothing: the reader may have taken the bytes off the socket,
// and not counted its read yet. So it takes two.
type deadlines struct {
	timer      *time.Timer
	at         time.Time // when the timer fires; zero while it is not set
	lateChecks int       // since the deadline that has passed
	quiet      bool      // the last check found nothing
	// hasUnread reports whether the socket has bytes that were not read; nil if
	// that is not known.
	hasUnread func() bool
}

const (
	maxLateChecks  = 4
	lateCheckPause = time.Millisecond / 2
	quietPause     = 50 * time.Microsecond // after a check that found nothing
)

// unreadOn returns what tells whether bytes have come on conn.
func unreadOn(conn net.Conn) func() bool {
	for {
		switch c := conn.(type) {
		case interface{ HasCome() bool }:
			return c.HasCome
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// setTimerLocked sees to it that an exchange with this deadline is ended by then.
func (c *Conn) setTimerLocked(deadline time.Time) {
	d := &c.deadlines
	if !d.at.IsZero() && !deadline.Before(d.at) {
		return
	}
	d.at = deadline
	if wait := time.Until(deadline); d.timer == nil {
		d.timer = time.AfterFunc(wait, c.expire)
	} else {
		d.timer.Reset(wait)
	}
}

// expire is what the timer does.
func (c *Conn) expire() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	d := &c.deadlines
	late, pause := d.late(&c.reads)
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
				c.abandonLocked(s, upstream.ErrDeadline)
				continue
			}
			looked, deadline = true, now.Add(pause)
		}
		if next.IsZero() || deadline.Before(next) {
			next = deadline
		}
	}
	if d.lateChecks++; !looked {
		d.lateChecks, d.quiet = 0, false
	}
	d.at = time.Time{}
	if !next.IsZero() {
		c.setTimerLocked(next)
	}
	c.flush(nil, nil)
}

// late reports whether a response may have come that the reader has not handled, and
// after which pause to check again.
func (d *deadlines) late(r *reads) (late bool, pause time.Duration) {
	switch {
	case d.lateChecks == maxLateChecks:
		return false, 0
	case r.handling() || d.hasUnread != nil && d.hasUnread():
		d.quiet = false
		return true, lateCheckPause
	case d.quiet || d.hasUnread == nil:
		return false, 0
	}
	d.quiet = true
	return true, quietPause
}

func (d *deadlines) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
