package http2

import (
	"bytes"

	h2 "golang.org/x/net/http2"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
)

// appendHeaderLocked appends the header of r to the buffer: a HEADERS frame, and CONTINUATION
// frames if the header is larger than the peer's frame limit. If it returns an error, the buffer is
// unchanged.
func (c *Conn) appendHeaderLocked(s *stream, r *exchange.Request) error {
	start := len(c.out.Frames)
	c.out.Frames = append(c.out.Frames, make([]byte, http2codec.FrameHeaderLen)...)
	var ok, synced bool
	c.out.Frames, ok, synced = c.encoder.AppendRequest(c.out.Frames, r)
	if !ok {
		c.out.Frames = c.out.Frames[:start]
		if !synced {
			c.drainLocked(exchange.ClosedError)
		}
		return errRequestHeader
	}
	var flags h2.Flags
	if len(r.Body) == 0 {
		flags, s.sentEnd = h2.FlagHeadersEndStream, true
	}
	c.out.Frames = http2codec.EndHeaders(c.out.Frames, start, int(c.peer.MaxFrame), flags, s.id)
	return nil
}

// headerListSize is the size of the header list of r, or a few bytes more: RFC 9113, section 6.5.2.
func headerListSize(r *exchange.Request) uint64 {
	const pseudo = ":method" + "POST" + ":scheme" + "https" + ":authority" + ":path" + "content-length" + "1234567890"
	fields := 5 + bytes.Count(r.Fields, crlf)
	return uint64(len(pseudo) + len(r.Authority) + len(r.Target) + len(r.Fields) + fields*http2codec.EntryOverhead)
}

// isolatedForSize reports whether ex is alone on its connection since its header is over
// exchange.LargeHead.
func isolatedForSize(ex *exchange.Exchange) bool {
	return ex.Isolated && ex.Request.HeadBytes() > exchange.LargeHead
}

var crlf = []byte("\r\n")
