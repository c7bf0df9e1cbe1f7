package http2

import (
	"bytes"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// appendHeaderLocked appends the header of r to the buffer: a HEADERS frame, and CONTINUATION
// frames if the header is larger than the peer's frame limit. s.body is the body. If it returns an
// error, the buffer is unchanged.
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

// splitHeaderLocked splits a header block into frames of at most limit bytes. The block stands at
// the end of the buffer, behind start and space for a frame header. RFC 9113, section 6.10.
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

// headerListSize is the size of the header list of r, or a few bytes more: RFC 9113, section 6.5.2.
func headerListSize(r *upstream.Request) uint64 {
	const pseudo = ":method" + "POST" + ":scheme" + "https" + ":authority" + ":path" + "content-length" + "1234567890"
	fields := 5 + bytes.Count(r.Fields, crlf)
	return uint64(len(pseudo) + len(r.Authority) + len(r.Target) + len(r.Fields) + fields*http2codec.EntryOverhead)
}

var crlf = []byte("\r\n")
