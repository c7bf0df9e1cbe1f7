package http2

import (
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// onData takes a piece of a body. RFC 9113, section 6.1.
func (c *Conn) onData(f frame) *connError {
	if f.id == 0 {
		return protocolError("DATA on no stream")
	}
	p, ok := unpad(f)
	if !ok {
		return protocolError("DATA with more padding than content")
	}
	last := f.flags.Has(h2.FlagDataEndStream)
	c.mu.Lock()
	defer c.unlock()
	c.receivedLocked(len(f.payload))
	c.resets.onAnswer()
	s := c.streams.get(f.id)
	if s == nil {
		return c.goneLocked(f)
	}
	if !last {
		c.receivedOnLocked(s, len(f.payload))
	}
	c.takeDataLocked(s, p, last)
	if len(p) == 0 && !last {
		return c.flood.idle()
	}
	return nil
}

func (c *Conn) takeDataLocked(s *stream, p []byte, last bool) {
	ex := s.ex
	s.received += len(p)
	switch {
	case !s.gotHead:
		c.malformedLocked(s, "DATA before the head", true)
	case s.noBody && len(p) > 0:
		c.malformedLocked(s, "a body where there is none", false)
	case ex.Response.ContentLength >= 0 && s.received > ex.Response.ContentLength && !s.noBody:
		c.malformedLocked(s, "the body is longer than its content-length", false)
	case s.received > c.opts.MaxResponseBytes:
		c.resetLocked(s, h2.ErrCodeCancel, errBodyTooLarge)
	default:
		if err := ex.AppendBody(p); err != nil {
			c.resetLocked(s, h2.ErrCodeCancel, upstream.AsError(err))
			return
		}
		if last {
			c.completeLocked(s)
		}
	}
}
