package http2

import (
	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// maxDataFrame bounds the DATA frames of a body, so that one frame does not delay other exchanges
// for long.
const maxDataFrame = 64 << 10

// uploads holds the streams whose request body is not completely in the buffer yet.
//
// A stream that waits for its own window is in no list. The connection's window and the buffer are
// shared; a stream that waits for them is in the queue. One stream of the queue is active at a
// time: it is woken, takes the bytes that it can use, and wakes the next. So a WINDOW_UPDATE wakes
// only as many goroutines as it has bytes for.
//
// Guarded by Conn.mu.
type uploads struct {
	n      int       // streams that upload
	queue  []*stream // streams that wait for the shared window or buffer, in order; may hold closed streams
	active *stream   // was woken and has not run since; nil for none
}

// waitReason says why an upload waits.
type waitReason uint8

const (
	forNothing waitReason = iota
	forWindow             // its own window
	forShared             // the connection's window, or space in the buffer
)

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

// windowLocked is the send window of s. It may be negative: RFC 9113, section 6.9.2.
func (c *Conn) windowLocked(s *stream) int64 { return int64(c.peer.initialWindow) + s.credit }

// appendBodyLocked appends as much of the body of s to the buffer as the windows and the buffer
// allow. Only the caller's goroutine may call it, since it reads the caller's bytes.
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

// startBodyLocked begins the upload of s, after the uploads that already wait.
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

// await sends the remaining body as the windows and the buffer allow, and waits for the response.
// wake is nil if no body remains.
func (c *Conn) await(s *stream, ex *upstream.Exchange, wake <-chan struct{}) error {
	var cancelled <-chan struct{}
	if ex.Context != nil {
		cancelled = ex.Context.Done()
	}
	for {
		select {
		case err := <-ex.Done(): // a response may arrive before the body is sent
			return err
		case <-cancelled:
			return c.cancel(s, ex)
		case <-wake:
		}
		c.mu.Lock()
		if s.ex != ex { // the exchange has ended, and s may belong to another exchange now
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
		c.unlockAndWrite(s, ex)
	}
}

// waitLocked makes s wait for its own window or for the shared window or buffer.
func (c *Conn) waitLocked(s *stream) {
	if c.windowLocked(s) <= 0 {
		s.waitsFor = forWindow
	} else {
		c.uploads.push(s)
	}
}

// windowGrewLocked is called when the window of s may have grown.
func (c *Conn) windowGrewLocked(s *stream) {
	if s.waitsFor == forWindow && c.windowLocked(s) > 0 {
		c.uploads.push(s)
		c.wakeNextLocked()
	}
}

// wakeNextLocked wakes the first upload in the queue, if there are bytes to take and no upload is
// active.
func (c *Conn) wakeNextLocked() {
	u := &c.uploads
	if u.active != nil || c.sendWindow <= 0 || len(c.out.buf) >= maxBuffered {
		return
	}
	if s := u.pop(); s != nil {
		u.active, s.waitsFor = s, forNothing
		s.wake <- struct{}{} // the channel is empty, since s waited
	}
}

// endUploadLocked ends the upload of s, complete or not, and wakes the next.
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
