package http2

import (
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
)

// stream is one exchange on its connection. RFC 9113, section 5.1, as a client sees it without
// push:
//
//	         openLocked          END_STREAM, RST_STREAM, or
//	(idle) ──────────────▶ open ──────────────────────────────▶ closed
//	                             the exchange is abandoned
//
// A stream is in the table while it is open. After it is closed, another exchange reuses its
// memory. Code that uses a stream after mu was unlocked must check that ex is still its own
// exchange.
type stream struct {
	id uint32
	ex *exchange.Exchange // nil after the stream is closed

	// credit is the send window beyond the peer's initial one: the sum of its WINDOW_UPDATEs, minus
	// the bytes sent. See http2codec.SendWindows.
	credit http2codec.Credit
	// body is the part of the request's body that is not in the buffer yet. Its bytes belong to the
	// caller, which waits while the stream is open.
	body    []byte
	queued  bool   // the stream is in Conn.uploads.queue
	sentEnd bool   // END_STREAM has been appended to the buffer
	start   uint64 // offset of its HEADERS, in bytes appended to the buffer
	spent   uint64 // Conn.sendBuffer.spent when its HEADERS were appended to the buffer

	// Receiving.
	window    http2codec.ReceiveWindow
	gotHeader bool
	fields    int  // of the header
	noBody    bool // the response has no body, because of the request's method or the status
	interim   int  // 1xx responses so far
	received  int  // bytes of the body
}

// responding reports whether HEADERS of the response, even of an interim one, have arrived.
func (s *stream) responding() bool { return s.gotHeader || s.interim > 0 }

// table holds the open streams of a connection in a ring, by their numbers, which needs no map. If a long-lived
// stream still uses the slot of the next number, the table skips that number, since stream numbers need only grow.
type table struct {
	slots  []slot // a power of two, at least twice as many as open streams
	active int
	next   uint32 // the first unused number
}

type slot struct {
	stream *stream
	// completed is the number of the last stream in this slot whose response was complete, so that adbuffer did not
	// reset it.
	completed uint32
}

func newTable(maxStreams int) table {
	n := 8
	for n < 2*maxStreams {
		n *= 2
	}
	return table{slots: make([]slot, n), next: 1}
}

func (t *table) slot(id uint32) *slot { return &t.slots[int(id>>1)&(len(t.slots)-1)] }

// get returns the open stream id, or nil.
func (t *table) get(id uint32) *stream {
	if s := t.slot(id).stream; s != nil && s.id == id && id&1 == 1 {
		return s
	}
	return nil
}

// add gives s a number. ok is false if the numbers are exhausted. The caller must not open more streams than the
// table was made for.
func (t *table) add(s *stream) (ok bool) {
	for t.next <= http2codec.MaxStreamID && t.slot(t.next).stream != nil {
		t.next += 2
	}
	if t.next > http2codec.MaxStreamID {
		return false
	}
	s.id = t.next
	t.slot(s.id).stream = s
	t.next += 2
	t.active++
	return true
}

func (t *table) remove(s *stream) {
	t.slot(s.id).stream = nil
	t.active--
}

// exhausted reports whether all stream numbers have been used.
func (t *table) exhausted() bool { return t.next > http2codec.MaxStreamID }

// idle reports whether stream id was never opened.
func (t *table) idle(id uint32) bool { return id&1 == 0 || id >= t.next }
