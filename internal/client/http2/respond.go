package http2

import (
	"slices"
	"time"

	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// respondLocked sends a response. Its memory belongs to the Request until Release.
func (c *Conn) respondLocked(s *Stream, r *Response) {
	s.responded, s.readBy, s.awaits100 = true, time.Time{}, false
	if r.Drain {
		c.drainLocked()
	}
	if r.Pause > 0 {
		c.owner.Pause(r.Pause / time.Duration(max(1, len(c.streams.open))))
	}
	s.status, s.fields, s.toSend, s.trailers = r.Status, r.Fields, r.Body, r.Trailers
	s.held = r.holds()
	c.held += s.held
	c.bodyLocked(s)
}

// streamCost is roughly the memory, in bytes, that a stream with an unread response holds in addition to the
// response.
const streamCost = 4 << 10

// holds returns how many bytes the response counts for while it is unread.
func (r *Response) holds() int { return streamCost + len(r.Fields) + len(r.Body) + len(r.Trailers) }

// servedLocked sends the response that Serve returned. It drops the response if the client has too
// many unread bytes of responses.
func (c *Conn) servedLocked(s *Stream, r *Response) {
	if c.held == 0 || c.held+r.holds() <= c.opts.MaxUnread {
		c.respondLocked(s, r)
	} else if err := c.resetLocked(s, h2.ErrCodeEnhanceYourCalm, "more responses than a client may leave unread"); err != nil {
		c.violatedLocked(err)
	}
}

// appendHeaderLocked appends a response's header. It returns false if it closed the connection
// because of a malformed field, which is a bug.
func (c *Conn) appendHeaderLocked(s *Stream, status int, lines []byte, flags h2.Flags) bool {
	start := len(c.out.Frames)
	c.out.Frames = append(c.out.Frames, frameHeader[:]...)
	var ok bool
	if status == 0 {
		c.out.Frames, ok = c.encoder.AppendTrailers(c.out.Frames, lines)
	} else {
		c.out.Frames, ok = c.encoder.AppendResponse(c.out.Frames, status, lines)
	}
	if !ok {
		c.out.Frames = c.out.Frames[:start]
		c.violatedLocked(&http2codec.Error{Code: h2.ErrCodeInternal, Text: "a response is malformed"})
		return false
	}
	c.out.Frames = http2codec.EndHeaders(c.out.Frames, start, http2codec.MaxFrameSize, flags, s.id)
	return true
}

var frameHeader [http2codec.FrameHeaderLen]byte

// gatherFor is how long adbuffer gathers small pieces of credit before it uses them.
const gatherFor = 10 * time.Millisecond

// hasWindowLocked reports whether the connection's window may be used. If the client returns credit in small pieces,
// the credit is gathered until it allows a whole frame. Otherwise each end of a body would split a piece of credit,
// and the pieces would become ever smaller.
func (c *Conn) hasWindowLocked() bool {
	if w := c.windows.Conn; w <= 0 || w >= http2codec.MaxFrameSize || !c.inPieces {
		return w > 0
	}
	c.watchLocked(time.Now().Add(gatherFor)) // the client may return nothing before it gets more
	return false
}

// bodyLocked sends the header of the response of s if it was not sent, as much of the body as can be
// sent now, and then the trailer. An unsent part waits for room in the buffer or for the stream's
// window, or queues for the connection's window.
func (c *Conn) bodyLocked(s *Stream) {
	if s.status != 0 {
		if len(c.out.Frames) >= maxBuffered {
			c.stalledLocked(s)
			return
		}
		var flags h2.Flags
		if len(s.toSend) == 0 && len(s.trailers) == 0 {
			flags = h2.FlagHeadersEndStream
		}
		if !c.appendHeaderLocked(s, s.status, s.fields, flags) {
			return
		}
		s.status, s.fields = 0, nil
		if flags != 0 {
			c.sentLocked(s)
			return
		}
	}
	for len(s.toSend) > 0 {
		n := int(min(int64(len(s.toSend)), c.windows.Of(s.credit), c.windows.Conn, http2codec.MaxFrameSize, int64(maxBuffered-len(c.out.Frames))))
		if n <= 0 || !c.hasWindowLocked() {
			c.stalledLocked(s)
			return
		}
		var flags h2.Flags
		if n == len(s.toSend) && len(s.trailers) == 0 {
			flags = h2.FlagDataEndStream
		}
		c.out.Frames = http2codec.AppendFrameHeader(c.out.Frames, n, h2.FrameData, flags, s.id)
		c.out.Frames = append(c.out.Frames, s.toSend[:n]...)
		s.toSend = s.toSend[n:]
		c.windows.Sent(&s.credit, n)
		c.flood.Sent(n, len(s.toSend) == 0)
	}
	if len(s.trailers) > 0 {
		if len(c.out.Frames) >= maxBuffered {
			c.stalledLocked(s)
			return
		}
		if !c.appendHeaderLocked(s, 0, s.trailers, h2.FlagHeadersEndStream) {
			return
		}
	}
	c.sentLocked(s)
}

// stalledLocked makes s wait for the client, for at most write_timeout.
func (c *Conn) stalledLocked(s *Stream) {
	if s.sendBy.IsZero() {
		_, write := c.owner.Timeouts()
		s.sendBy = time.Now().Add(write)
		c.watchLocked(s.sendBy)
		s.req.Unread()
	}
	if s.needsNoWindow() || c.windows.Of(s.credit) > 0 {
		c.waiting.push(s)
	}
}

// needsNoWindow reports whether a header or a trailer is the next part of the response of s.
func (s *Stream) needsNoWindow() bool { return s.status != 0 || len(s.toSend) == 0 }

// unreadForLongest is the violation of a client whose response is dropped.
const unreadForLongest = "of all unread responses, the one that has waited for longest"

// DropUnread resets stream id if its response waits for the client. If the response has waited for dropAfter, the
// client is to blame: the reset costs the connection dropCost, so that a client that never reads loses its connection
// too. If it has waited for less, the memory is short because of other clients, and the reset costs nothing.
//
// A response that is in the buffer can only be dropped with its connection. A client that reads
// slowly has dropAfter to read it.
func (c *Conn) DropUnread(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams.get(id); s != nil && s.responded {
		_, write := c.owner.Timeouts()
		waited := write - time.Until(s.sendBy)
		c.rejectLocked(s, h2.ErrCodeEnhanceYourCalm, unreadForLongest)
		if waited >= dropAfter {
			if err := c.flood.Spend(c.dropCost()); err != nil {
				c.violatedLocked(err)
			}
		}
		c.sendLocked()
		return
	}
	if slices.ContainsFunc(c.out.release, func(r sent) bool { return r.stream.id == id }) {
		c.dropBufferLocked(func() { c.DropUnread(id) })
	}
}

// DropUnsent closes the connection if the current write has waited for the client for dropAfter, at once
// or when that time has passed.
func (c *Conn) DropUnsent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := c.out.waitsSince; !since.IsZero() {
		c.dropBufferLocked(func() { c.dropUnsentSince(since) })
	}
}

func (c *Conn) dropUnsentSince(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.waitsSince.Equal(since) {
		c.dropBufferLocked(func() { c.dropUnsentSince(since) })
	}
}

// dropBufferLocked closes the connection if a write has waited for dropAfter. Otherwise it arranges to be called
// again when that time has passed.
func (c *Conn) dropBufferLocked(again func()) {
	if c.closed {
		return
	}
	wait := dropAfter
	if !c.out.waitsSince.IsZero() {
		wait -= time.Since(c.out.waitsSince)
	}
	if wait > 0 {
		time.AfterFunc(wait, again)
		return
	}
	c.violatedLocked(&http2codec.Error{Code: h2.ErrCodeEnhanceYourCalm, Text: unreadForLongest})
	c.owner.HangUp()
}

// dropAfter is how long an unread response may wait before its client is to blame. It is also how long a write may
// wait before the responses in the buffer are dropped. Until then these responses do not count as unread, so
// dropAfter must be short.
const dropAfter = 250 * time.Millisecond

// dropCost is the cost of a dropped response. Dropping all streams at once costs half of what is allowed, so that a
// client whose machine stalls for a moment keeps its connection.
func (c *Conn) dropCost() int {
	return min(max(http2codec.FloodBudget/2/c.opts.MaxStreams, 1), violationCost)
}

// WriteWaits is called when a write has to wait for the client. The responses in the buffer count as
// unread from then on.
func (c *Conn) WriteWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.waitsSince.IsZero() {
		c.out.waitsSince = time.Now()
	}
	for _, r := range c.out.release {
		if r.stream.req != nil {
			r.stream.req.Unread()
		}
	}
	c.countUnsentLocked()
}

// pumpLocked sends bodies that wait for the connection's window or for room in the buffer.
func (c *Conn) pumpLocked() {
	for len(c.out.Frames) < maxBuffered && c.waiting.first() != nil {
		s := c.waiting.take(c.hasWindowLocked())
		if s == nil {
			return
		}
		c.bodyLocked(s)
		c.unholdLocked(s)
	}
}

// sentLocked ends a stream whose response is in the buffer. The stream keeps its memory until the
// buffer is written.
func (c *Conn) sentLocked(s *Stream) {
	if !s.ended { // RFC 9113, section 8.1: the server does not need the rest of the request
		// The client can send the rest of a body that fits the window. A reset before that is an
		// error for curl, which then loses the response.
		if rest := s.length - s.body; s.length < 0 || rest > s.window.Left() {
			c.out.Frames = http2codec.AppendReset(c.out.Frames, s.id, h2.ErrCodeNo)
		}
		c.flood.Expect(s.window.Left())
	}
	c.flood.Earn()
	s.gone.Store(true)
	c.streams.remove(s)
	s.toSend, s.trailers = nil, nil
	s.holds++
	c.out.release = append(c.out.release, sent{c.out.End(), s})
}
