package http2

import (
	"encoding/binary"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// onGoAwayLocked handles GOAWAY: the peer takes no more requests, and states the last stream that it
// will respond to. The peer did not process later streams. Their requests may be sent again, unless
// the peer has begun to respond to them. A peer may send GOAWAY twice: first with the largest
// number, as an announcement, and then with the real one. RFC 9113, section 6.8.
//
// If the GOAWAY has an error code, a request may have caused the error: the last request that the peer states to have
// read, or the first request after it. The former may have been processed, and is not sent again. The latter is sent
// again, alone on its connection.
func (c *Conn) onGoAwayLocked(f http2codec.Frame) *http2codec.Error {
	last := binary.BigEndian.Uint32(f.Payload) & http2codec.MaxStreamID
	code := h2.ErrCode(binary.BigEndian.Uint32(f.Payload[4:]))
	first, others := errNotProcessed, errNotProcessedToo
	if code != h2.ErrCodeNo {
		c.goAwayCode = code
		c.demote, c.refuses = classify(code)
		first = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Demote: c.demote, RefusesHTTP2: c.refuses,
			Isolate: exchange.IsolateNext, Detail: "the SSP closed the HTTP/2 connection: " + code.String()}
		others = first.AsCollateral()
		others.Isolate = exchange.IsolateLast
	}
	c.drainLocked(exchange.ClosedGoaway)
	if last >= c.lastProcessed {
		return c.flood.Idle()
	}
	c.lastProcessed = last
	served := 0
	if code == h2.ErrCodeNo {
		served = c.servedLocked(last)
	}
	firstAfter := c.firstAfterLocked(last)
	for i := range c.streams.slots {
		switch s := c.streams.slots[i].stream; {
		case s == nil || s.id <= last:
		case s.responding():
			c.failLocked(s, errContradicted)
		case code != h2.ErrCodeNo && isolatedForSize(s.ex):
			c.failLocked(s, largeHeadRefused(&s.ex.Request, "ended its HTTP/2 connection", code))
		case s == firstAfter:
			s.ex.Served = served
			c.endCounted = true
			c.failLocked(s, first)
		default:
			s.ex.Served = served
			c.failLocked(s, others)
		}
	}
	return c.flood.Spend(1 + len(c.streams.slots)/http2codec.StreamsPerFrame)
}

// firstAfterLocked returns the first open stream after last, or nil.
func (c *Conn) firstAfterLocked(last uint32) (first *stream) {
	for i := range c.streams.slots {
		if s := c.streams.slots[i].stream; s != nil && s.id > last && (first == nil || s.id < first.id) {
			first = s
		}
	}
	return first
}

// servedLocked returns the number of requests up to stream last, divided by the number of later requests; see
// exchange.Exchange.
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
	code := h2.ErrCode(binary.BigEndian.Uint32(f.Payload))
	err := resetByPeer(code, s.responding())
	if (err.Demote || code == h2.ErrCodeEnhanceYourCalm) && !s.responding() && isolatedForSize(s.ex) {
		err = largeHeadRefused(&s.ex.Request, "reset the HTTP/2 stream", code)
	}
	c.failLocked(s, err)
	return nil
}
