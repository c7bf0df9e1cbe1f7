package http2

import (
	"bytes"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// appendHeadLocked puts the head of r into the buffer: a HEADERS frame, and
// CONTINUATION frames where it is larger than the peer takes in one. s.body is
// the body. If it returns an error, the buffer is as it was.
func (c *Conn) appendHeaderLocked(s *stream, r *upstream.Request) error {
	start := len(c.out.buf)
	c.out.buf = append(c.out.buf, make([]byte, http2codec.FrameHeaderLen)...)
	var ok, synced bool
	c.out.buf, ok, synced = c.encoder.AppendRequest(c.out.buf, r)
	if !ok {
		c.out.buf = c.out.buf[:start]
		if !synced {
			c.drainLocked(upstream.ClosedError)
		}
		return errRequestHeader
	}
	var flags h2.Flags
	if len(s.body) == 0 {
		flags, s.sentEnd = h2.FlagHeadersEndStream, true
	}
	size := len(c.out.buf) - start - http2codec.FrameHeaderLen
	if limit := int(c.peer.maxFrame); size > limit {
		c.splitHeaderLocked(start, limit, flags, s.id)
		return nil
	}
	http2codec.SetFrameHeader(c.out.buf[start:], size, h2.FrameHeaders, flags|h2.FlagHeadersEndHeaders, s.id)
	return nil
}

// splitHeadLocked makes the header block that stands in the buffer behind start
// and room for a frame header into frames of at most limit bytes. RFC 9113,
// section 6.10.
func (c *Conn) splitHeaderLocked(start, limit int, flags h2.Flags, id uint32) {
	block := bytes.Clone(c.out.buf[start+http2codec.FrameHeaderLen:])
	b := c.out.buf[:start]
	kind := h2.FrameHeaders
	for len(block) > 0 {
		n := min(len(block), limit)
		if n == len(block) {
			flags |= h2.FlagHeadersEndHeaders
		}
		b = http2codec.AppendFrameHeader(b, n, kind, flags, id)
		b = append(b, block[:n]...)
		block, kind, flags = block[n:], h2.FrameContinuation, 0
	}
	c.out.buf = b
}

// headerListSize is the size of the header list that r is sent as, or a few
// bytes more: RFC 9113, section 6.5.2.
func headerListSize(r *upstream.Request) uint64 {
	const pseudo = ":method" + "POST" + ":scheme" + "https" + ":authority" + ":path" + "content-length" + "1234567890"
	fields := 5 + bytes.Count(r.Fields, crlf)
	return uint64(len(pseudo) + len(r.Authority) + len(r.Target) + len(r.Fields) + fields*http2codec.EntryOverhead)
}

var crlf = []byte("\r\n")
