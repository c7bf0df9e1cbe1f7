package http2

import (
	"encoding/binary"

	h2 "golang.org/x/net/http2"
)

// onWindowUpdate opens a send window. RFC 9113, section 6.9.
func (c *Conn) onWindowUpdate(f frame) *connError {
	if len(f.payload) != 4 {
		return frameSizeError("WINDOW_UPDATE of a wrong size")
	}
	n := int64(binary.BigEndian.Uint32(f.payload) & maxWindow)
	c.mu.Lock()
	defer c.unlock()
	if f.id == 0 {
		switch c.sendWindow += n; {
		case n == 0:
			return protocolError("WINDOW_UPDATE by 0")
		case c.sendWindow > maxWindow:
			return flowError("WINDOW_UPDATE makes the connection's window overflow")
		case len(c.waiters) == 0:
			return c.in.idle()
		}
		c.wakeLocked()
		return nil
	}
	s := c.streams.get(f.id)
	if s == nil {
		return c.goneLocked(f)
	}
	switch s.sendWindow += n; {
	case n == 0:
		c.resetLocked(s, h2.ErrCodeProtocol, badAnswer("WINDOW_UPDATE by 0", true))
	case s.sendWindow > maxWindow:
		c.resetLocked(s, h2.ErrCodeFlowControl, badAnswer("WINDOW_UPDATE makes the stream's window overflow", true))
	case !s.waiting:
		return c.in.idle()
	default:
		s.resume()
	}
	return nil
}

// receivedLocked counts n bytes of DATA, padding included, against the
// connection's receive window, and gives them back in large pieces. It does so
// for every DATA frame, wanted or not: else a window would leak away with each
// abandoned answer.
func (c *Conn) receivedLocked(n int) *connError {
	if c.recvWindow -= n; c.recvWindow < 0 {
		return flowError("more DATA than the connection's window")
	}
	if c.recvOwed += n; c.recvOwed >= connWindow/2 {
		c.out.buf = appendWindowUpdate(c.out.buf, 0, uint32(c.recvOwed))
		c.recvWindow += c.recvOwed
		c.recvOwed = 0
	}
	return nil
}

// receivedOnLocked does the same for a stream. ok is false if the peer has sent
// more than it may.
func (c *Conn) receivedOnLocked(s *stream, n int, last bool) (ok bool) {
	if s.recvWindow -= n; s.recvWindow < 0 {
		return false
	}
	if s.recvOwed += n; s.recvOwed >= c.streamWindow/2 && !last {
		c.out.buf = appendWindowUpdate(c.out.buf, s.id, uint32(s.recvOwed))
		s.recvWindow += s.recvOwed
		s.recvOwed = 0
	}
	return true
}
