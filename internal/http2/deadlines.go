package http2

import (
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
type deadlines struct {
	timer *time.Timer
	at    time.Time // when the timer fires; zero while it is not set
}

// watchLocked sees to it that an exchange with this deadline is ended by then.
func (c *Conn) watchLocked(deadline time.Time) {
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
	now := time.Now()
	var next time.Time
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		switch deadline := s.ex.Deadline; {
		case !deadline.After(now):
			c.abandonLocked(s, upstream.ErrDeadline)
		case next.IsZero() || deadline.Before(next):
			next = deadline
		}
	}
	c.deadlines.at = time.Time{}
	if !next.IsZero() {
		c.watchLocked(next)
	}
	c.flush(nil, nil)
}

func (d *deadlines) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
