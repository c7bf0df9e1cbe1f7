package http2server

import (
	"time"

	h2 "golang.org/x/net/http2"
)

// timer ends streams that take too long: bodies that do not arrive, and responses that the client
// does not read. It also ends the gathering of credit: see hasWindowLocked. One timer serves all
// streams of a connection. It is set to the earliest moment, and only for streams that have to wait.
type timer struct {
	timer *time.Timer
	at    time.Time // when it fires; zero while it is not set
}

// watchLocked makes expire run at that moment.
func (c *Conn) watchLocked(at time.Time) {
	t := &c.timer
	if !t.at.IsZero() && !at.Before(t.at) {
		return
	}
	t.at = at
	if wait := time.Until(at); t.timer == nil {
		t.timer = time.AfterFunc(wait, c.expire)
	} else {
		t.timer.Reset(wait)
	}
}

func (t *timer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// expire ends the streams whose deadline has passed, and sends what was held back to gather credit.
func (c *Conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.timer.at = time.Time{}
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
