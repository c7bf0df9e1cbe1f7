package http2

import (
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// maxDataFrame bounds the frames of a body, so that one does not hold up other
// exchanges for long, whatever the peer takes.
const maxDataFrame = 64 << 10

// appendBodyLocked puts as much of the body of s into the buffer as the windows
// and the buffer allow. Only the caller's goroutine calls it: it reads the
// caller's bytes.
func (c *Conn) appendBodyLocked(s *stream) {
	for len(s.body) > 0 {
		n := min(int64(len(s.body)), c.sendWindow, s.sendWindow, int64(c.peer.maxFrame), maxDataFrame,
			int64(maxBuffered-len(c.out.buf)))
		if n <= 0 {
			return
		}
		var flags h2.Flags
		if int(n) == len(s.body) {
			flags, s.ended = h2.FlagDataEndStream, true
		}
		c.out.buf = appendFrameHeader(c.out.buf, int(n), h2.FrameData, flags, s.id)
		c.out.buf = append(c.out.buf, s.body[:n]...)
		s.body = s.body[n:]
		c.sendWindow -= n
		s.sendWindow -= n
	}
}

// upload sends the rest of a body as windows and the buffer let it, and then
// waits for the answer.
func (c *Conn) upload(s *stream, ex *upstream.Exchange, wake <-chan struct{}) error {
	var cancelled <-chan struct{}
	if ex.Context != nil {
		cancelled = ex.Context.Done()
	}
	for {
		select {
		case err := <-ex.Done(): // maybe an answer, before the body was sent
			return err
		case <-cancelled:
			return c.cancel(s, ex)
		case <-wake:
		}
		c.mu.Lock()
		if s.ex != ex { // it has ended, and s may be another's by now
			c.mu.Unlock()
			return <-ex.Done()
		}
		c.appendBodyLocked(s)
		if len(s.body) == 0 {
			s.wake, wake = nil, nil
			c.uploads--
		} else {
			c.awaitRoomLocked(s)
		}
		c.flush(s, ex)
	}
}

// awaitRoomLocked makes s wait: for a window or, where the windows are open,
// for the buffer.
func (c *Conn) awaitRoomLocked(s *stream) {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
		c.uploads++
	}
	s.waiting = true
	if !s.listed {
		s.listed = true
		c.waiters = append(c.waiters, s)
	}
}

// wakeLocked wakes all uploads that wait: one of the things that they wait for
// has come. Who finds too little waits again.
func (c *Conn) wakeLocked() {
	for _, s := range c.waiters {
		s.listed = false
		s.resume()
	}
	clear(c.waiters)
	c.waiters = c.waiters[:0]
}

// resume wakes the upload of s if it waits.
func (s *stream) resume() {
	if !s.waiting || s.wake == nil {
		return
	}
	s.waiting = false
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is on its way already
	}
}
