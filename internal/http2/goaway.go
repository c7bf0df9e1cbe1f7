package http2

import (
	"encoding/binary"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// onGoAwayLocked handles GOAWAY: the peer takes no more requests, and states the last stream that it
// will respond to. The peer did not process later streams. Their requests may be sent again, unless
// the peer has begun to respond to them. A peer may send GOAWAY twice: first with the largest
// number, as an announcement, and then with the real one. RFC 9113, section 6.8.
func (c *Conn) onGoAwayLocked(f http2codec.Frame) *http2codec.Error {
	last := binary.BigEndian.Uint32(f.Payload) & http2codec.MaxStreamID
	code := h2.ErrCode(binary.BigEndian.Uint32(f.Payload[4:]))
	err := errNotProcessed
	if code != h2.ErrCodeNo {
		c.demote, c.refuses = classify(code)
		err = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed, Demote: c.demote, RefusesHTTP2: c.refuses,
			Detail: "the SSP closed the HTTP/2 connection: " + code.String()}
	}
	c.drainLocked(upstream.ClosedGoaway)
	if last >= c.lastProcessed {
		return c.flood.Idle()
	}
	c.lastProcessed = last
	served := 0
	if code == h2.ErrCodeNo {
		served = c.servedLocked(last)
	}
	for i := range c.streams.slots {
		switch s := c.streams.slots[i].stream; {
		case s == nil || s.id <= last:
		case s.responding():
			c.failLocked(s, errContradicted)
		default:
			s.ex.Served = served
			c.failLocked(s, err)
		}
	}
	return c.flood.Spend(1 + len(c.streams.slots)/slotsPerFrame)
}

// servedLocked returns how many requests up to stream last there were for each later one; see
// upstream.Exchange.
func (c *Conn) servedLocked(last uint32) int {
	later := 0
	for i := range c.streams.slots {
		if s := c.streams.slots[i].stream; s != nil && s.id > last {
			later++
		}
	}
	return int(last+1) / 2 / max(1, later)
}

// onResetLocked handles RST_STREAM. RFC 9113, section 6.4.
func (c *Conn) onResetLocked(f http2codec.Frame) *http2codec.Error {
	s := c.streams.get(f.ID)
	if s == nil {
		return c.onClosedStreamLocked(f)
	}
	c.failLocked(s, resetByPeer(h2.ErrCode(binary.BigEndian.Uint32(f.Payload)), s.responding()))
	return nil
}
