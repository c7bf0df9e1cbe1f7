package http2

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/http2codec"
)

// Stream is one request on its connection. RFC 9113, section 5.1, as a server sees it:
//
//	           HEADERS              END_STREAM          Serve returns         all is sent
//	(idle) ───────────────▶ coming ───────────▶ serving ─────────────▶ sending ──────────▶ gone
//	                            │ refused                                  ▲
//	                            └──────────────────────────────────────────┘
//
// From each state RST_STREAM or a violation leads to gone. A stream is in the table until it is
// gone. Its memory is reused when no worker holds it.
type Stream struct {
	id  uint32
	req Request

	// gone: the response of Serve is not wanted.
	gone      atomic.Bool
	violation string // the violation for which the stream was reset

	opened    time.Time
	ended     bool // END_STREAM has arrived
	serving   bool // a worker serves it
	responded bool

	length    int // content-length, -1 for none
	body      int // bytes that have arrived
	window    http2codec.ReceiveWindow
	readBy    time.Time // when the next part of the body must have arrived; zero if none is awaited
	bodyBegun bool      // a part of the body has arrived
	awaits100 bool      // the client waits for 100 Continue

	credit   http2codec.Credit
	status   int    // of the response, while its header waits for room in the buffer; otherwise 0
	fields   []byte // of that header
	toSend   []byte // the unsent part of the response's body
	trailers []byte
	held     int       // bytes of the response, until all are written; a part of Conn.held
	sendBy   time.Time // when the client must have read the response; zero while it does not wait
	queued   bool      // in Conn.waiting

	holds int // lists that contain s beside the table, and its worker
}

var streams = sync.Pool{New: func() any { return new(Stream) }}

// ID returns the stream's number, for Drop.
func (s *Stream) ID() uint32 { return s.id }

// Gone reports whether the client no longer wants the response: it has reset the stream or closed
// the connection.
func (s *Stream) Gone() bool { return s.gone.Load() }

// Violation returns the violation for which the stream was reset, "" for none. Only Request.Release
// may call it.
func (s *Stream) Violation() string { return s.violation }

// table holds the open streams by number, and remembers the last closed ones.
type table struct {
	open []*Stream // in ascending order of their numbers
	// past holds the last closed streams: for each, twice its number, plus 1 if the client had ended the stream. It
	// is allocated when the first stream is closed.
	past []uint32
	next int
	// forgotten is the highest number of a closed stream that is no longer in past. Streams up to that number may
	// have been open.
	forgotten uint32
}

// remembered is how many closed streams are remembered.
const remembered = 128

// get returns the open stream id, or nil.
func (t *table) get(id uint32) *Stream {
	n := len(t.open)
	if n > 0 && t.open[n-1].id == id {
		return t.open[n-1]
	}
	if i := t.find(id); i < n && t.open[i].id == id {
		return t.open[i]
	}
	return nil
}

func (t *table) find(id uint32) int {
	return sort.Search(len(t.open), func(i int) bool { return t.open[i].id >= id })
}

func (t *table) remove(s *Stream) {
	i := t.find(s.id)
	t.open = slices.Delete(t.open, i, i+1)
	t.remember(s.id, s.ended)
}

// remember records that stream id is closed. ended says that the client can send nothing more on the stream.
func (t *table) remember(id uint32, ended bool) {
	if t.past == nil {
		t.past = make([]uint32, remembered)
	}
	v := id << 1
	if ended {
		v |= 1
	}
	t.forgotten = max(t.forgotten, t.past[t.next]>>1)
	t.past[t.next] = v
	t.next = (t.next + 1) % remembered
}

// wasOpen reports whether stream id, which is closed, may have been open, and whether the client is
// known to have ended it.
func (t *table) wasOpen(id uint32) (possible, ended bool) {
	for _, v := range t.past {
		if v>>1 == id {
			return true, v&1 == 1
		}
	}
	return id <= t.forgotten, false
}

// newStreamLocked opens stream id.
func (c *Conn) newStreamLocked(id uint32) *Stream {
	s := streams.Get().(*Stream)
	s.id, s.opened = id, c.in.Clock()
	s.window = http2codec.NewReceiveWindow(c.opts.StreamWindow)
	c.streams.open = append(c.streams.open, s) // the highest number
	c.idleAt = time.Time{}
	return s
}

// dropLocked ends s without a response, or in the middle of one.
func (c *Conn) dropLocked(s *Stream) {
	s.gone.Store(true)
	if s.serving {
		c.ghosts++
		s.req.Cancel()
	}
	c.streams.remove(s)
	s.status, s.fields, s.toSend, s.trailers = 0, nil, nil, nil
	if s.queued { // the window may never open
		c.waiting.remove(s)
		s.holds--
	}
	c.releaseLocked(s)
	c.drainedLocked()
}

// unholdLocked must be called when a list or a worker no longer holds s.
func (c *Conn) unholdLocked(s *Stream) {
	s.holds--
	c.releaseLocked(s)
}

// releaseLocked frees s once it is gone and no list or worker holds it.
func (c *Conn) releaseLocked(s *Stream) {
	if !s.gone.Load() || s.holds > 0 {
		return
	}
	c.held -= s.held
	if s.req != nil {
		s.req.Release()
	}
	*s = Stream{}
	streams.Put(s)
}
