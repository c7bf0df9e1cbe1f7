package http2

import (
	h2 "golang.org/x/net/http2"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
)

// onDataLocked handles a part of a body. RFC 9113, section 6.1.
func (c *Conn) onDataLocked(f http2codec.Frame) *http2codec.Error {
	p, ok := http2codec.Unpad(f)
	if !ok {
		return http2codec.ProtocolError("DATA with more padding than content")
	}
	last := f.Flags.Has(h2.FlagDataEndStream)
	// The window counts every DATA frame, even of abandoned exchanges. Otherwise each such frame
	// would reduce the window for good.
	c.received.Take(len(f.Payload))
	c.out.Frames = c.received.AppendRefill(c.out.Frames, 0)
	c.resets.onResponse()
	s := c.streams.get(f.ID)
	if s == nil {
		return c.onClosedStreamLocked(f)
	}
	if !last {
		s.window.Take(len(f.Payload))
		c.out.Frames = s.window.AppendRefill(c.out.Frames, s.id)
	}
	c.takeDataLocked(s, p, last)
	if len(p) == 0 && !last {
		return c.flood.Idle()
	}
	return nil
}

func (c *Conn) takeDataLocked(s *stream, p []byte, last bool) {
	ex := s.ex
	s.received += len(p)
	switch {
	case !s.gotHeader:
		c.malformedLocked(s, "DATA before the header", true)
	case s.noBody && len(p) > 0:
		c.malformedLocked(s, "a body for a response that has none", false)
	case ex.Response.ContentLength >= 0 && s.received > ex.Response.ContentLength && !s.noBody:
		c.malformedLocked(s, "the body is longer than its content-length", false)
	case s.received > c.opts.MaxResponseBytes:
		c.resetLocked(s, h2.ErrCodeCancel, exchange.BodyTooLarge(c.opts.MaxResponseBytes))
	default:
		if err := ex.AppendBody(p); err != nil {
			c.resetLocked(s, h2.ErrCodeCancel, exchange.AsError(err))
			return
		}
		if last {
			c.responseDoneLocked(s)
		}
	}
}
