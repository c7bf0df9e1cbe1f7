package http2

import (
	"encoding/binary"
	"time"

	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// Costs of frames that advance no request, for http2codec.Flood, which closes a connection whose frames cost too much.
// Other frames cost 1 there; see Flood.Idle and Flood.Caused.
const (
	violationCost = 10 // a violation that costs one stream
	rapidCost     = 10 // a reset of a stream that has just been opened
)

// smallUpdate is in bytes. A WINDOW_UPDATE of fewer bytes has a cost even if a body waited for it.
const smallUpdate = 1 << 10

// A reset that arrives within rapid of the stream's HEADERS and before its response counts as hostile, since no client
// gives up so soon.
const rapid = 10 * time.Millisecond

// resetLocked resets a stream for a violation of the client. RFC 9113, section 5.4.2.
func (c *Conn) resetLocked(s *Stream, code h2.ErrCode, rule string) *http2codec.Error {
	c.rejectLocked(s, code, rule)
	return c.flood.Spend(violationCost)
}

// rejectLocked resets a stream because of a rule, and adds no cost for the client.
func (c *Conn) rejectLocked(s *Stream, code h2.ErrCode, rule string) {
	c.owner.Violated(rule)
	s.violation = rule
	c.cancelLocked(s, code)
}

// cancelLocked resets a stream.
func (c *Conn) cancelLocked(s *Stream, code h2.ErrCode) {
	c.out.Frames = http2codec.AppendReset(c.out.Frames, s.id, code)
	if !s.ended {
		c.flood.Expect(s.window.Left())
	}
	c.dropLocked(s)
}

// neverOpenedLocked reports whether the client cannot have opened stream id. After the last GOAWAY
// the client may have opened streams that are ignored: RFC 9113, section 6.8.
func (c *Conn) neverOpenedLocked(id uint32) bool {
	return id&1 == 0 || id > c.lastID && !c.drain.final
}

// onResetLocked handles RST_STREAM: the client no longer wants the response. RFC 9113, section 6.4.
func (c *Conn) onResetLocked(f http2codec.Frame) *http2codec.Error {
	if c.neverOpenedLocked(f.ID) {
		return http2codec.ProtocolError("RST_STREAM on a stream that was never opened")
	}
	s := c.streams.get(f.ID)
	if s == nil {
		return c.flood.Caused()
	}
	responded, isRapid := s.responded, c.in.Clock().Sub(s.opened) < rapid
	s.ended = true // the client can send nothing more on the stream
	c.dropLocked(s)
	switch {
	case responded: // the client may have read enough of the response
		return c.flood.Caused()
	case isRapid:
		return c.flood.Spend(rapidCost)
	}
	return c.flood.Idle()
}

// onWindowUpdateLocked enlarges a send window. RFC 9113, section 6.9.
func (c *Conn) onWindowUpdateLocked(f http2codec.Frame) *http2codec.Error {
	n := http2codec.IncrementOf(f)
	if f.ID == 0 {
		if err := c.windows.Grow(n); err != nil {
			return err
		}
		c.inPieces = n < http2codec.MaxFrameSize
		needed := n >= smallUpdate && c.waiting.first() != nil
		c.pumpLocked()
		return c.countUpdateLocked(needed)
	}
	if c.neverOpenedLocked(f.ID) {
		return http2codec.ProtocolError("WINDOW_UPDATE on a stream that was never opened")
	}
	s := c.streams.get(f.ID)
	if s == nil {
		return c.flood.Caused()
	}
	if err := c.windows.GrowStream(&s.credit, n); err != nil {
		return c.resetLocked(s, err.Code, err.Text)
	}
	needed := n >= smallUpdate && len(s.toSend) > 0
	c.windowGrewLocked(s)
	c.pumpLocked()
	return c.countUpdateLocked(needed)
}

// countUpdateLocked counts a WINDOW_UPDATE for the flood limit unless it was needed: a body waited for it, and it was not
// small.
func (c *Conn) countUpdateLocked(needed bool) *http2codec.Error {
	if needed {
		return nil
	}
	return c.flood.Caused()
}

// windowGrewLocked is called when the window of the stream s may have grown. It queues s if s can send now.
func (c *Conn) windowGrewLocked(s *Stream) {
	if len(s.toSend) > 0 && c.windows.Of(s.credit) > 0 {
		c.waiting.push(s)
	}
}

// appendPrefaceLocked appends the first frames of the connection: RFC 9113, section 3.4.
func (c *Conn) appendPrefaceLocked() {
	announced := http2codec.Announced{
		MaxStreams: c.opts.MaxStreams, StreamWindow: c.opts.StreamWindow, MaxHeaderList: c.opts.MaxHeaderList, ConnWindow: connWindow,
	}
	c.out.Frames = announced.Append(c.out.Frames)
}

// onSettingsLocked handles the client's settings and acknowledges them.
func (c *Conn) onSettingsLocked(f http2codec.Frame) *http2codec.Error {
	if f.Flags.Has(h2.FlagSettingsAck) {
		return c.flood.Idle()
	}
	s, err := http2codec.ParseSettings(f.Payload)
	if err != nil {
		return err
	}
	c.encoder.Apply(&s)
	if visit := c.windows.Apply(&s, true); visit {
		for _, s := range c.streams.open {
			c.windows.Visit(s.credit)
			c.windowGrewLocked(s)
		}
		if err := c.windows.Visited(len(c.streams.open), &c.flood); err != nil {
			return err
		}
	}
	c.out.Frames = http2codec.AppendSettingsAck(c.out.Frames)
	c.pumpLocked() // after the acknowledgement: the bodies may need the new windows
	return c.flood.Idle()
}

// onPingLocked acknowledges a PING, or handles an acknowledgement. RFC 9113, section 6.7.
func (c *Conn) onPingLocked(f http2codec.Frame) *http2codec.Error {
	switch {
	case !f.Flags.Has(h2.FlagPingAck):
		c.out.Frames = http2codec.AppendPing(c.out.Frames, h2.FlagPingAck, f.Payload)
	case [8]byte(f.Payload) == drainPing:
		c.announcedLocked()
	}
	return c.flood.Idle()
}

// onPriorityLocked checks a PRIORITY frame, which is obsolete. RFC 9113, section 6.3.
func (c *Conn) onPriorityLocked(f http2codec.Frame) *http2codec.Error {
	code, rule := h2.ErrCodeProtocol, "a stream that depends on itself"
	switch {
	case len(f.Payload) != 5:
		code, rule = h2.ErrCodeFrameSize, "PRIORITY of a wrong size"
	case binary.BigEndian.Uint32(f.Payload)&http2codec.MaxStreamID != f.ID:
		return c.flood.Idle()
	}
	if s := c.streams.get(f.ID); s != nil {
		return c.resetLocked(s, code, rule)
	}
	c.owner.Violated(rule)
	c.out.Frames = http2codec.AppendReset(c.out.Frames, f.ID, code)
	return c.flood.Spend(violationCost)
}

// InadequateSecurity returns all frames of a server that refuses a connection because of its cipher
// suite: empty SETTINGS, and a GOAWAY with the text. RFC 9113, section 9.2.2.
func InadequateSecurity(text string) []byte {
	settings := http2codec.AppendFrameHeader(nil, 0, h2.FrameSettings, 0, 0)
	return http2codec.AppendGoAway(settings, 0, h2.ErrCodeInadequateSecurity, text)
}
