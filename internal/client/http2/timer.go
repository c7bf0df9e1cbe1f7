package http2

import (
	"time"

	h2 "golang.org/x/net/http2"
)

// watchLocked makes expire run at the given moment. One timer serves all streams of a connection, and is set only for
// streams that have to wait.
func (c *Conn) watchLocked(at time.Time) {
	if c.alarm.Ring == nil { // not in New, since most connections are idle
		c.alarm.Ring = c.expire
	}
	c.alarm.Set(at)
}

// expire ends streams that take too long: bodies that have not arrived, and responses that the client does not read.
// It also sends the bodies that were held back to gather credit; see hasWindowLocked.
func (c *Conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.alarm.At = time.Time{}
	now := time.Now()
	var next time.Time
	// Backwards, since the loop may remove a stream, or all if it closes the connection.
	for i := len(c.streams.open) - 1; i >= 0 && !c.closed; i-- {
		s := c.streams.open[i]
		by := s.readBy
		if s.responded {
			by = s.sendBy
		}
		switch {
		case by.IsZero():
		case now.Before(by):
			if next.IsZero() || by.Before(next) {
				next = by
			}
		case s.responded:
			c.cancelLocked(s, h2.ErrCodeCancel)
		default:
			c.respondLocked(s, s.req.TimedOut())
		}
	}
	if !next.IsZero() {
		c.watchLocked(next)
	}
	c.inPieces = false
	c.pumpLocked()
	c.sendLocked()
}
