package http2

import "adbuffer/internal/wire/http2codec"

// onWindowUpdateLocked enlarges the send window of the connection or of a stream, and sends the bodies that waited for
// it. If no body is unsent, the frame counts against the peer's flood limit. RFC 9113, section 6.9.
func (c *Conn) onWindowUpdateLocked(f http2codec.Frame) *http2codec.Error {
	n := http2codec.IncrementOf(f)
	if f.ID == 0 {
		if err := c.windows.Grow(n); err != nil {
			return err
		}
		if c.uploads.n == 0 {
			return c.flood.Idle()
		}
		c.sendBodiesLocked()
		return nil
	}
	s := c.streams.get(f.ID)
	if s == nil {
		return c.onClosedStreamLocked(f)
	}
	err := c.windows.GrowStream(&s.credit, n)
	switch {
	case err != nil:
		c.resetLocked(s, err.Code, badResponse(err.Text, true))
	case len(s.body) == 0:
		return c.flood.Idle()
	default:
		c.windowGrewLocked(s)
		c.sendBodiesLocked()
	}
	return nil
}
