package http2

import (
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// onDataLocked handles a piece of a body. RFC 9113, section 6.1.
func (c *Conn) onDataLocked(f http2codec.Frame) *http2codec.Error {
	p, ok := http2codec.Unpad(f)
	if !ok {
		return http2codec.ProtocolError("DATA with more padding than content")
	}
	c.received.Take(len(f.Payload))
	c.out.Frames = c.received.AppendRefill(c.out.Frames, 0)
	s := c.streams.get(f.ID)
	if s == nil {
		return c.onLateDataLocked(f)
	}
	last := f.Flags.Has(h2.FlagDataEndStream)
	s.body += len(p)
	s.window.Take(len(f.Payload))
	switch {
	case s.ended:
		return c.resetLocked(s, h2.ErrCodeStreamClosed, "DATA behind END_STREAM")
	case s.length >= 0 && s.body > s.length:
		return c.resetLocked(s, h2.ErrCodeProtocol, "a body that is longer than its content-length")
	}
	if len(p) > 0 && !s.responded {
		c.onBodyLocked(s, p)
		if s.gone.Load() {
			return nil
		}
	}
	if last {
		return c.onEndLocked(s)
	}
	c.out.Frames = s.window.AppendRefill(c.out.Frames, s.id)
	if len(p) == 0 {
		return c.flood.Idle()
	}
	return nil
}

// onBodyLocked gives a piece of a body to the Request.
func (c *Conn) onBodyLocked(s *Stream, p []byte) {
	s.awaits100 = false
	if !s.bodyBegun && !s.readBy.IsZero() {
		read, _ := c.owner.Timeouts()
		s.readBy = c.in.Clock().Add(read)
	}
	s.bodyBegun = true
	if refusal := s.req.Data(p); refusal != nil {
		c.respondLocked(s, refusal)
	}
}

// onLateDataLocked checks DATA for a stream that is not open. On a stream that adbuffer has reset,
// the client may send for a while. RFC 9113, section 5.1.
func (c *Conn) onLateDataLocked(f http2codec.Frame) *http2codec.Error {
	if c.neverOpenedLocked(f.ID) {
		return http2codec.ProtocolError("DATA on a stream that was never opened")
	}
	if _, ended := c.streams.wasOpen(f.ID); ended {
		c.out.Frames = http2codec.AppendReset(c.out.Frames, f.ID, h2.ErrCodeStreamClosed)
		c.owner.Violated("DATA on a stream that was closed")
		return c.flood.Spend(violationCost)
	}
	if len(f.Payload) > 0 {
		if err := c.flood.Waste(len(f.Payload)); err != nil {
			return err
		}
	}
	return c.flood.Idle()
}

// awaitBodiesLocked awaits the bodies of new requests that have not arrived with their headers.
func (c *Conn) awaitBodiesLocked() {
	for i, s := range c.fresh {
		c.fresh[i] = nil
		if !s.gone.Load() && !s.ended && !s.responded {
			c.awaitBodyLocked(s)
		}
		c.unholdLocked(s)
	}
	c.fresh = c.fresh[:0]
}

func (c *Conn) awaitBodyLocked(s *Stream) {
	if s.awaits100 {
		s.awaits100 = false
		c.appendHeaderLocked(s, 100, nil, 0)
	}
	s.req.Await()
	read, _ := c.owner.Timeouts()
	s.readBy = c.in.Clock().Add(read)
	c.watchLocked(s.readBy)
}

// Drop refuses the request of stream id if its body is still arriving.
func (c *Conn) Drop(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams.get(id); s != nil && !s.ended && !s.responded {
		c.respondLocked(s, s.req.Dropped())
		c.sendLocked()
	}
}
