package http2

import (
	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// maxDataFrame bounds the frames of a body, so that one does not hold up other
// exchanges for long, whatever the peer takes.
const maxDataFrame = 64 << 10

// uploads are the streams whose request body is not yet all in the buffer.
//
// A stream may wait for its own window, and then stands in no list. Or it waits
// for what all streams share: the connection's window and the buffer. Those
// streams queue, and one at a time is woken: it takes what it can use, and then
// passes the turn on. So a WINDOW_UPDATE wakes as many goroutines as it has
// bytes for, however many wait.
//
// Conn.mu guards it.
type uploads struct {
	n      int       // streams that are uploading
	queue  []*stream // wait for what is shared, in their order; may hold streams that are gone
	active *stream   // was woken, and has not run since; nil for none
}

// waitsFor is what stops an upload.
type waitReason uint8

const (
	forNothing waitReason = iota
	forWindow             // its own
	forShared             // the connection's window, or room in the buffer
)

// push puts s at the end of the queue.
func (u *uploads) push(s *stream) {
	s.waitsFor = forShared
	if !s.queued {
		s.queued = true
		u.queue = append(u.queue, s)
	}
}

// pop returns the first stream of the queue that still waits, or nil.
func (u *uploads) pop() *stream {
	for len(u.queue) > 0 {
		s := u.queue[0]
		u.queue[0] = nil
		u.queue = u.queue[1:]
		s.queued = false
		if s.waitsFor == forShared {
			return s
		}
	}
	u.queue = nil
	return nil
}

// windowLocked is the send window of s. It may be negative: RFC 9113, section
// 6.9.2.
func (c *Conn) windowLocked(s *stream) int64 { return int64(c.peer.initialWindow) + s.credit }

// appendBodyLocked puts as much of the body of s into the buffer as the windows
// and the buffer allow. Only the caller's goroutine calls it: it reads the
// caller's bytes.
func (c *Conn) appendBodyLocked(s *stream) {
	for len(s.body) > 0 {
		n := min(int64(len(s.body)), c.sendWindow, c.windowLocked(s), int64(c.peer.maxFrame), maxDataFrame,
			int64(maxBuffered-len(c.out.buf)))
		if n <= 0 {
			return
		}
		var flags h2.Flags
		if int(n) == len(s.body) {
			flags, s.sentEnd = h2.FlagDataEndStream, true
		}
		c.out.buf = http2codec.AppendFrameHeader(c.out.buf, int(n), h2.FrameData, flags, s.id)
		c.out.buf = append(c.out.buf, s.body[:n]...)
		s.body = s.body[n:]
		c.sendWindow -= n
		s.credit -= n
	}
}

// startBodyLocked begins the upload of s. It goes behind the uploads that wait
// already.
func (c *Conn) startBodyLocked(s *stream) {
	if c.uploads.active == nil && len(c.uploads.queue) == 0 {
		c.appendBodyLocked(s)
	}
	if len(s.body) > 0 {
		s.wake = make(chan struct{}, 1)
		c.uploads.n++
		c.waitLocked(s)
		c.wakeNextLocked()
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
			wake = nil
			c.endUploadLocked(s)
		} else {
			c.uploads.active = nil
			c.waitLocked(s)
			c.wakeNextLocked()
		}
		c.flush(s, ex)
	}
}

// awaitLocked makes s wait for what stops it.
func (c *Conn) waitLocked(s *stream) {
	if c.windowLocked(s) <= 0 {
		s.waitsFor = forWindow
	} else {
		c.uploads.push(s)
	}
}

// openedLocked is told that the window of s may have grown.
func (c *Conn) windowGrewLocked(s *stream) {
	if s.waitsFor == forWindow && c.windowLocked(s) > 0 {
		c.uploads.push(s)
		c.wakeNextLocked()
	}
}

// turnLocked wakes the first upload in the queue, if there is something for it
// and no other has the turn.
func (c *Conn) wakeNextLocked() {
	u := &c.uploads
	if u.active != nil || c.sendWindow <= 0 || len(c.out.buf) >= maxBuffered {
		return
	}
	if s := u.pop(); s != nil {
		u.active, s.waitsFor = s, forNothing
		s.wake <- struct{}{} // it is empty: s waited
	}
}

// uploadedLocked ends the upload of s, whole or not, and passes its turn on.
func (c *Conn) endUploadLocked(s *stream) {
	if s.wake == nil {
		return
	}
	s.wake, s.waitsFor = nil, forNothing
	c.uploads.n--
	if c.uploads.active == s {
		c.uploads.active = nil
	}
	c.wakeNextLocked()
}
