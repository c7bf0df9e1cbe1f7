package http2

import (
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// maxDataFrame bounds the DATA frames of a body, so that one frame does not delay other exchanges
// for long.
const maxDataFrame = 64 << 10

// uploads are the streams whose request body is not completely in the buffer yet.
//
// A stream that waits for its own window is in no list. The connection's window and the buffer are
// shared; a stream that waits for them is in the queue.
//
// Guarded by Conn.mu.
type uploads struct {
	n     int      // streams that upload
	queue []uint32 // streams that wait for the shared window or buffer, in order; may hold closed streams
}

func (u *uploads) push(s *stream) {
	if !s.queued {
		s.queued = true
		u.queue = append(u.queue, s.id)
	}
}

// sendBodiesLocked appends the bodies in the queue to the buffer, as far as the windows and the buffer allow. A body
// of which more remains goes to the end of the queue.
func (c *Conn) sendBodiesLocked() {
	u := &c.uploads
	for len(u.queue) > 0 && c.windows.Conn > 0 && len(c.out.Frames) < maxBuffered {
		s := c.streams.get(u.queue[0])
		u.queue = u.queue[1:]
		if s == nil {
			continue
		}
		s.queued = false
		c.appendBodyLocked(s)
		if len(s.body) == 0 {
			u.n--
		} else {
			c.windowGrewLocked(s)
		}
	}
}

// appendBodyLocked appends as much of the body of s to the buffer as the windows and the buffer allow.
func (c *Conn) appendBodyLocked(s *stream) {
	for len(s.body) > 0 {
		n := min(int64(len(s.body)), c.windows.Conn, c.windows.Of(s.credit), int64(c.peer.MaxFrame), maxDataFrame,
			int64(maxBuffered-len(c.out.Frames)))
		if n <= 0 {
			return
		}
		var flags h2.Flags
		if int(n) == len(s.body) {
			flags, s.sentEnd = h2.FlagDataEndStream, true
		}
		c.out.Frames = http2codec.AppendFrameHeader(c.out.Frames, int(n), h2.FrameData, flags, s.id)
		c.out.Frames = append(c.out.Frames, s.body[:n]...)
		s.body = s.body[n:]
		c.windows.Sent(&s.credit, int(n))
	}
}

// startBodyLocked begins the upload of s, after the uploads that already wait.
func (c *Conn) startBodyLocked(s *stream) {
	s.body = s.ex.Request.Body
	if len(c.uploads.queue) == 0 {
		c.appendBodyLocked(s)
	}
	if len(s.body) > 0 {
		c.uploads.n++
		c.windowGrewLocked(s)
		c.sendBodiesLocked()
	}
}

// windowGrewLocked queues s if it uploads and has a window. The caller then calls sendBodiesLocked.
func (c *Conn) windowGrewLocked(s *stream) {
	if len(s.body) > 0 && c.windows.Of(s.credit) > 0 {
		c.uploads.push(s)
	}
}
