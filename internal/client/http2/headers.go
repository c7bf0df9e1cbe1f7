package http2

import (
	"time"

	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// onHeadersLocked handles HEADERS and CONTINUATION.
func (c *Conn) onHeadersLocked(f http2codec.Frame) *http2codec.Error {
	if f.ID&1 == 0 {
		return http2codec.ProtocolError("HEADERS on a stream that a client cannot open")
	}
	block, whole, err := c.in.Fragments.Take(f)
	if err != nil || !whole {
		return err
	}
	return c.onBlockLocked(f.ID, block)
}

// onBlockLocked handles a whole header block: a request's header or trailer.
func (c *Conn) onBlockLocked(id uint32, block http2codec.HeaderBlock) *http2codec.Error {
	b, last := &c.in.block, block.Last
	b.Reset()
	if err := c.in.Decoder.Decode(block.Bytes, b); err != nil {
		return err
	}
	if s := c.streams.get(id); s != nil {
		return c.onTrailersLocked(s, b, last)
	}
	if id <= c.lastID {
		return c.onLateBlockLocked(id)
	}
	if c.drain.final { // the server's GOAWAY stated that it is not processed
		c.flood.Expect(c.opts.StreamWindow)
		return c.flood.Idle()
	}
	c.lastID = id
	b.EndHeader(last)
	switch {
	case len(c.streams.open)+c.ghosts >= c.opts.MaxStreams:
		c.owner.TooManyStreams()
		return c.refuseLocked(id, last)
	case c.held > c.opts.MaxUnread/4*3:
		c.owner.TooMuchUnread(c.held)
		return c.refuseLocked(id, last)
	case block.DependsOn == id:
		b.Malformed = "a stream that depends on itself"
	}
	if b.Malformed != "" {
		c.owner.Violated(b.Malformed)
		c.owner.Refused(b.Malformed)
		c.out.Frames = http2codec.AppendReset(c.out.Frames, id, h2.ErrCodeProtocol)
		c.streams.remember(id, last)
		c.flood.Expect(c.opts.StreamWindow)
		return c.flood.Spend(violationCost)
	}
	c.openLocked(id, b, last)
	return nil
}

// refuseLocked refuses a stream because of a limit. The client may send its request again.
func (c *Conn) refuseLocked(id uint32, last bool) *http2codec.Error {
	c.out.Frames = http2codec.AppendReset(c.out.Frames, id, h2.ErrCodeRefusedStream)
	c.streams.remember(id, last)
	c.flood.Expect(c.opts.StreamWindow)
	return c.flood.Idle()
}

// openLocked opens a stream for a request.
func (c *Conn) openLocked(id uint32, b *http2codec.RequestBlock, last bool) {
	s := c.newStreamLocked(id)
	s.length, s.awaits100 = b.Length, b.Continue && !last
	req, refusal := c.owner.Open(s, b, last)
	s.req = req
	if last {
		s.ended = true
	}
	switch {
	case refusal != nil:
		c.respondLocked(s, refusal)
	case last:
		c.endedLocked(s)
	default:
		c.fresh = append(c.fresh, s)
		s.holds++
	}
}

// onTrailersLocked handles a request's trailer, which is checked already, and drops it. RFC 9113,
// section 8.1.
func (c *Conn) onTrailersLocked(s *Stream, b *http2codec.RequestBlock, last bool) *http2codec.Error {
	b.EndTrailers()
	switch {
	case s.ended:
		return c.resetLocked(s, h2.ErrCodeStreamClosed, "HEADERS behind END_STREAM")
	case !last:
		return c.resetLocked(s, h2.ErrCodeProtocol, "a second header of a request")
	case b.Malformed != "":
		return c.resetLocked(s, h2.ErrCodeProtocol, b.Malformed)
	case b.TooLarge:
		return c.resetLocked(s, h2.ErrCodeEnhanceYourCalm, "trailers that are too long")
	}
	return c.onEndLocked(s)
}

// onLateBlockLocked checks HEADERS on a stream that is no longer open. A trailer may arrive for a
// stream that adbuffer has reset, however many streams were closed since: flood bounds how many such
// frames may come. RFC 9113, sections 5.1 and 5.1.1.
func (c *Conn) onLateBlockLocked(id uint32) *http2codec.Error {
	switch possible, ended := c.streams.wasOpen(id); {
	case ended:
		return &http2codec.Error{Code: h2.ErrCodeStreamClosed, Text: "HEADERS on a stream that was closed"}
	case possible:
		return c.flood.Idle()
	}
	return http2codec.ProtocolError("HEADERS on a stream below one that was opened")
}

// onEndLocked handles END_STREAM in a frame behind the header.
func (c *Conn) onEndLocked(s *Stream) *http2codec.Error {
	if s.length >= 0 && s.body != s.length {
		return c.resetLocked(s, h2.ErrCodeProtocol, "a body that is not as long as its content-length")
	}
	s.ended = true
	if !s.responded {
		c.endedLocked(s)
	}
	return nil
}

// endedLocked makes the request ready to be served.
func (c *Conn) endedLocked(s *Stream) {
	s.readBy = time.Time{}
	s.holds++
	c.ready = append(c.ready, s)
}
