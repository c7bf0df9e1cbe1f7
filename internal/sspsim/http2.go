package sspsim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxOpenStreams bounds the stream limit. It also bounds the streams of a connection until the
	// peer has acknowledged that limit.
	maxOpenStreams = 4096
	// The number of bytes that a peer may send before it must wait for WINDOW_UPDATE. The SSP
	// reopens the window only when less than fullWindow is left. A window that opens early would
	// hide a peer that does not count.
	streamWindow = 65535 // the protocol's default
	connWindow   = 1 << 20
	fullWindow   = 1 << 10
	// maxQueued is how many bytes may wait to be written before new responses wait.
	maxQueued = 256 << 10
	// maxFlood is how many bytes of control frames may wait. If a peer requests more without
	// reading, the SSP closes its connection.
	maxFlood = 1 << 20

	maxHeaderList = 64 << 10
	frameSize     = 16 << 10 // the largest frame sent and accepted: the protocol's default
)

// http2Conn serves an HTTP/2 connection. Its reader reads frames and opens streams. The reader
// writes a response that need not wait. Otherwise a goroutine of the stream writes it.
//
// Frames gather in out before they are sent. If no other goroutine is in flush, a goroutine in
// flush writes until out is empty.
type http2Conn struct {
	*conn
	br      *bufio.Reader
	framer  *http2.Framer // only for reading; the reader's
	settled bool          // the peer's first SETTINGS have arrived; the reader's

	lastID     uint32   // highest stream that the peer has opened; the reader's
	dispatched uint32   // highest stream that is or was processed; the reader's
	received   int      // used bytes of the connection's receive window; the reader's
	announced  []uint32 // stream limits that were sent and not acknowledged; the reader's
	limit      uint32   // stream limit in force; the reader's
	lastLimit  int64    // stream limit last announced, -1 at first; the reader's
	served     int      // requests processed; the reader's
	reply      reply    // of respondNow; the reader's

	mu       sync.Mutex // guards the fields below; never held across I/O
	room     sync.Cond  // signalled when a window opens, out shrinks, or sealed is set
	out      frameQueue
	spare    []byte // the buffer that alternates with out
	writer   *http2.Framer
	encoder  *hpack.Encoder
	block    bytes.Buffer // of the header block under construction
	fields   []Field      // of the response header under construction
	streams  map[uint32]*stream
	window   int64  // bytes that may still be sent on the connection
	initial  int64  // bytes that may be sent on a new stream
	goneFrom uint32 // streams above it are ignored
	leaving  bool   // flush closes the connection when the last stream has ended
	flushing bool
	sealed   bool // no more frames are added to out
}

// stream is one request and its response. The reader owns its fields until the request is complete,
// and then the handler does. mu of the connection guards the exceptions.
type stream struct {
	Request
	received int  // used bytes of the stream's receive window
	whole    bool // the request was read whole; always the reader's

	done chan struct{} // closed when the stream is removed from http2Conn.streams

	window int64 // bytes that may still be sent on it; guarded by http2Conn.mu
}

// frameQueue holds frames that wait to be written.
type frameQueue []byte

// Write implements io.Writer.
func (q *frameQueue) Write(p []byte) (int, error) {
	*q = append(*q, p...)
	return len(p), nil
}

func newHTTP2Conn(c *conn) *http2Conn {
	h := &http2Conn{conn: c, limit: maxOpenStreams, lastLimit: -1, streams: map[uint32]*stream{},
		window: 65535, initial: 65535, goneFrom: 1<<31 - 1}
	h.room.L = &h.mu
	h.br = bufio.NewReaderSize(h, 16<<10)
	h.framer = http2.NewFramer(nil, h.br)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = maxHeaderList
	h.framer.SetMaxReadFrameSize(frameSize)
	h.framer.SetReuseFrames()
	h.writer = http2.NewFramer(&h.out, nil)
	h.writer.AllowIllegalWrites = true
	h.encoder = hpack.NewEncoder(&h.block)
	c.poison = h.sendUnsolicited
	return h
}

// serve reads frames until the SSP or the peer ends the connection.
func (h *http2Conn) serve() {
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.out = h.out[:0] // the peer has gone, or must get no more
		h.cutLocked()
	}()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(h.br, preface); err != nil || string(preface) != http2.ClientPreface {
		if err == nil {
			h.ssp.countBadRequest(errors.New("HTTP/2 connection without its preface"))
		}
		return
	}
	// From here on the reader announces a change of the stream limit.
	h.conn.onPlan = h.announceLimit
	h.announceLimit(h.conn.plan)
	_ = h.control(func() { _ = h.writer.WriteWindowUpdate(0, connWindow-65535) })
	for {
		frame, err := h.framer.ReadFrame()
		if err == nil {
			err = h.handleFrame(frame)
		}
		if err != nil && !h.canContinue(err) {
			return
		}
	}
}

// Read writes the queued frames before it waits for more bytes.
func (h *http2Conn) Read(b []byte) (int, error) {
	h.flush()
	return h.conn.Read(b)
}

// canContinue handles the error of a frame. It returns false if the reader must end.
func (h *http2Conn) canContinue(err error) bool {
	var ofStream http2.StreamError
	var ofConn http2.ConnectionError
	switch {
	case errors.As(err, &ofStream):
		h.ssp.countBadRequest(err)
		if id := ofStream.StreamID; id%2 == 1 {
			h.lastID = max(h.lastID, id) // the framer refuses header blocks before the reader sees them
		}
		h.resetStream(ofStream.StreamID, ofStream.Code)
		return true
	case errors.As(err, &ofConn):
		h.ssp.countBadRequest(err)
		h.sayGoAway(http2.ErrCode(ofConn), h.lastID)
	case errors.Is(err, http2.ErrFrameTooLarge):
		h.ssp.countBadRequest(err)
		h.sayGoAway(http2.ErrCodeFrameSize, h.lastID)
	case errors.Is(err, errIdle):
		if h.conn.plan.Connections.Announce {
			h.sayGoAway(http2.ErrCodeNo, h.lastID)
		}
	default:
		return false
	}
	h.mu.Lock()
	h.cutLocked()
	h.mu.Unlock()
	h.flush()
	h.linger(h.br)
	return false
}

// handleFrame handles one frame. The error is a StreamError or a ConnectionError.
func (h *http2Conn) handleFrame(frame http2.Frame) error {
	if h.closing.Load() {
		return nil
	}
	if _, ok := frame.(*http2.SettingsFrame); !ok && !h.settled {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		h.settled = true
		return h.takeSettings(f)
	case *http2.MetaHeadersFrame:
		return h.takeHeaders(f)
	case *http2.DataFrame:
		return h.takeData(f)
	case *http2.WindowUpdateFrame:
		return h.takeWindow(f)
	case *http2.RSTStreamFrame:
		h.ssp.count(func(c *Counters) { c.ResetsSeen++ })
		if f.StreamID > h.lastID {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		h.dropStream(f.StreamID)
		return nil
	case *http2.PingFrame:
		if !f.IsAck() {
			return h.control(func() { _ = h.writer.WritePing(true, f.Data) })
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // GOAWAY, PRIORITY and unknown frames
}

func (h *http2Conn) takeSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if len(h.announced) > 0 {
			h.limit, h.announced = h.announced[0], h.announced[1:]
		}
		return nil
	}
	if f.HasDuplicates() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := f.ForeachSetting(http2.Setting.Valid); err != nil {
		return err
	}
	return h.control(func() {
		_ = f.ForeachSetting(func(s http2.Setting) error {
			switch s.ID {
			case http2.SettingInitialWindowSize:
				for _, st := range h.streams {
					st.window += int64(s.Val) - h.initial
				}
				h.initial = int64(s.Val)
				h.room.Broadcast()
			case http2.SettingHeaderTableSize:
				h.encoder.SetMaxDynamicTableSizeLimit(min(s.Val, 4096))
			}
			return nil
		})
		_ = h.writer.WriteSettingsAck()
	})
}

// announceLimit sends the stream limit if it differs from the last one announced.
func (h *http2Conn) announceLimit(p *script) {
	limit := p.Connections.streamLimit()
	if int64(limit) == h.lastLimit {
		return
	}
	h.lastLimit = int64(limit)
	h.announced = append(h.announced, limit)
	_ = h.control(func() {
		_ = h.writer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: limit},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList})
	})
	h.flush()
}

func (h *http2Conn) takeWindow(f *http2.WindowUpdateFrame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.StreamID == 0 {
		h.window += int64(f.Increment)
		if h.window > 1<<31-1 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
	} else if st := h.streams[f.StreamID]; st != nil {
		st.window += int64(f.Increment)
		if st.window > 1<<31-1 {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
		}
	} else if f.StreamID > h.lastID {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	h.room.Broadcast()
	return nil
}

// control queues frames that respond to the peer's frames; write runs under mu.
func (h *http2Conn) control(write func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sealed {
		return nil
	}
	write()
	if len(h.out) > maxFlood {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
