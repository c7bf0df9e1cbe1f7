package http2

import (
	"encoding/binary"

	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// onWindowUpdateLocked enlarges a send window. RFC 9113, section 6.9.
func (c *Conn) onWindowUpdateLocked(f http2codec.Frame) *http2codec.Error {
	n := int64(binary.BigEndian.Uint32(f.Payload) & http2codec.MaxWindow)
	if f.ID == 0 {
		c.sendWindow += n
		switch {
		case n == 0:
			return http2codec.ProtocolError("WINDOW_UPDATE by 0")
		case c.sendWindow > http2codec.MaxWindow:
			return http2codec.FlowError("WINDOW_UPDATE makes the connection's window overflow")
		case c.uploads.n == 0:
			return c.flood.Idle()
		}
		c.sendBodiesLocked()
		return nil
	}
	s := c.streams.get(f.ID)
	if s == nil {
		return c.onClosedStreamLocked(f)
	}
	s.credit += n
	c.maxCredit = max(c.maxCredit, s.credit)
	switch {
	case n == 0:
		c.resetLocked(s, h2.ErrCodeProtocol, badResponse("WINDOW_UPDATE by 0", true))
	case c.windowLocked(s) > http2codec.MaxWindow:
		c.resetLocked(s, h2.ErrCodeFlowControl, badResponse("WINDOW_UPDATE makes the stream's window overflow", true))
	case len(s.body) == 0:
		return c.flood.Idle()
	default:
		c.windowGrewLocked(s)
		c.sendBodiesLocked()
	}
	return nil
}
