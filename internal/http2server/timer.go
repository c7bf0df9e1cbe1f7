package http2server

import (
	"time"

	h2 "golang.org/x/net/http2"
)

// timer ends what takes too long: bodies that do not come, and responses that are not
// taken. One timer does it for all streams of a connection; it is set to the earliest of
// their moments, and only for streams that have to wait.
type timer struct {
	timer *time.Timer
	at    time.Time // when it fires; zero while it is not set
}

// watchLocked sees to it that expire looks at the streams at that moment.
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

// expire is what the timer does.
func (c *Conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.timer.at = time.Time{}
	now := time.Now()
	var next time.Time
	for i := len(c.streams.open) - 1; i >= 0; i-- { // backwards, since streams may go
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
	c.sendLocked()
}
