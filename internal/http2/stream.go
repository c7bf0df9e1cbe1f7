package http2

import (
	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"
)

// stream is one exchange on its connection. RFC 9113, section 5.1, as a client
// sees it without push:
//
//	         openLocked          END_STREAM, RST_STREAM, or
//	(idle) ──────────────▶ open ──────────────────────────────▶ gone
//	                             the exchange is abandoned
//
// A stream is in the table while it is open, and is used again for another
// exchange when it is gone: whoever comes back to one after mu was unlocked
// looks whether ex is still his own.
type stream struct {
	id uint32
	ex *upstream.Exchange // nil once gone

	// Sending.
	// credit is the window beyond the peer's initial one: what its
	// WINDOW_UPDATEs gave, less what was sent. See windowLocked.
	credit int64
	// body is what of the request's body has not been put into the buffer. Only
	// the caller's goroutine reads it, which owns its bytes.
	body    []byte
	sentEnd bool   // we have put END_STREAM into the buffer
	start   uint64 // where its HEADERS begin, in bytes put into the buffer
	spent   uint64 // Conn.room.spent when its HEADERS were put into the buffer

	// wake is not nil while the caller sends its body; it has capacity 1 and is
	// signalled when the upload gets its turn.
	wake     chan struct{}
	waitsFor waitReason
	queued   bool // stands in Conn.uploads.queue

	// Receiving.
	recvOwed  int // what we have taken and not yet given back to the window
	gotHeader bool
	fields    int  // of the header
	noBody    bool // by the request's method or the status
	interim   int  // 1xx answers so far
	received  int  // bytes of the body
}

// responding reports whether HEADERS of the response have come, of an interim
// response too.
func (s *stream) responding() bool { return s.gotHeader || s.interim > 0 }

// table holds the open streams of a connection, in a ring by their numbers. A
// number whose slot is still taken by a long-lived stream is left out: numbers
// need only grow. That spares a map.
type table struct {
	slots  []slot // a power of two, at least twice as many as open streams
	active int
	next   uint32 // the first number that is not in use
}

type slot struct {
	stream *stream
	// ended is the last stream here whose answer came to its end, and not by a
	// reset of ours.
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

// add gives s a number. ok is false when there are no more numbers. The caller
// keeps to the number of streams that the table is made for.
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

// exhausted reports whether there are no more numbers.
func (t *table) exhausted() bool { return t.next > http2codec.MaxStreamID }

// idle reports whether stream id was never opened.
func (t *table) idle(id uint32) bool { return id&1 == 0 || id >= t.next }
