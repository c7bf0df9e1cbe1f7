package sspsim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
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

	maxHeaderList = 64 << 10
	maxQueued     = 256 << 10 // bytes of frames that may wait while the reader reads on
	frameSize     = 16 << 10  // the largest frame sent and accepted: the protocol's default
)

// http2Conn serves an HTTP/2 connection. Its reader handles one frame after the other, and sends the responses
// that need not wait. Otherwise a goroutine of the stream waits. A body that a window holds back goes on when
// the reader receives WINDOW_UPDATE.
//
// It uses the Framer of x/net, but not its http2.Server, since that server cannot do what tests need. It accepts
// some malformed requests, and responds 400 to others before a handler sees them. It cannot change its stream limit or
// announce a limit of 0. A handler learns neither the stream ID, which a GOAWAY that excludes its request needs, nor
// the order of the header fields. And it uses more than twice the CPU for a request, which a load test would take
// from adbuffer.
//
// Frames gather in out before they are sent. If no other goroutine is in flush, a goroutine in
// flush writes until out is empty.
type http2Conn struct {
	*conn
	br     *bufio.Reader
	framer *http2.Framer // only for reading; the reader's

	// conn.mu guards the fields below. The reader holds it while it handles a frame.
	settled     bool     // the peer's first SETTINGS have arrived
	lastID      uint32   // highest stream that the peer has opened
	dispatched  uint32   // highest stream that is or was processed
	received    int      // used bytes of the connection's receive window
	announced   []uint32 // stream limits that were sent and not acknowledged
	limit       uint32   // stream limit in force
	lastLimit   int64    // stream limit last announced, -1 at first
	served      int      // requests processed under a MaxRequests
	streams     map[uint32]*stream
	window      int64  // bytes that may still be sent on the connection
	initial     int64  // bytes that may be sent on a new stream
	buffers     reply  // of an ended stream, for the next response
	ignoreAbove uint32 // streams above it are ignored
	leaving     bool   // flush closes the connection when the last stream has ended

	out      frameQueue
	spare    []byte        // the buffer that alternates with that of out
	writer   *http2.Framer // to out
	encoder  *hpack.Encoder
	block    bytes.Buffer // of the header block under construction
	flushing bool
	written  sync.Cond // a goroutine in flush has written
}

// stream is one request and its response. conn.mu guards all its fields, except those of the request once its
// processing has begun: they no longer change.
type stream struct {
	Request
	received   int           // used bytes of the stream's receive window
	done       chan struct{} // closed when the stream is removed from http2Conn.streams
	window     int64         // bytes that may still be sent on it
	plan       *script       // nil until the request has begun
	fate       fate
	response   reply
	unsent     []byte // of the response's body
	held       int    // the last bytes of unsent that Drip holds back
	trailing   bool   // frames follow the body
	responding bool   // the header was queued
}

// frameQueue holds frames that wait to be written.
type frameQueue struct {
	frames []byte
	sealed bool // no more frames are added
}

// Write implements io.Writer.
func (q *frameQueue) Write(p []byte) (int, error) {
	if !q.sealed {
		q.frames = append(q.frames, p...)
	}
	return len(p), nil
}

func newHTTP2Conn(c *conn) *http2Conn {
	h := &http2Conn{conn: c, limit: maxOpenStreams, lastLimit: -1, streams: map[uint32]*stream{},
		window: 65535, initial: 65535, ignoreAbove: 1<<31 - 1}
	h.written.L = &h.mu
	h.br = bufio.NewReaderSize(h, 16<<10)
	h.framer = http2.NewFramer(nil, h.br)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = maxHeaderList
	h.framer.SetMaxReadFrameSize(frameSize)
	h.framer.SetReuseFrames()
	h.writer = http2.NewFramer(&h.out, nil)
	h.writer.AllowIllegalWrites = true
	h.encoder = hpack.NewEncoder(&h.block)
	return h
}

// serve reads frames until the SSP or the peer ends the connection.
func (h *http2Conn) serve() {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(h.br, preface); err != nil || string(preface) != http2.ClientPreface {
		if err == nil {
			h.ssp.countBadRequest(errors.New("HTTP/2 connection without its preface"))
		}
		return
	}
	h.serveAs(h)
	h.mu.Lock()
	_ = h.writer.WriteWindowUpdate(0, connWindow-65535)
	h.mu.Unlock()
	for more := true; more; {
		frame, err := h.framer.ReadFrame()
		h.mu.Lock()
		if err == nil {
			err = h.handleLocked(frame)
		}
		more = err == nil || h.continueLocked(err)
		h.mu.Unlock()
	}
	h.flush()
	h.linger(h.br)
}

// Read writes the queued frames before it waits for more bytes. While another goroutine is in flush, and
// more than maxQueued bytes are queued, Read waits for that goroutine: the peer may not read at all.
func (h *http2Conn) Read(b []byte) (int, error) {
	h.flush()
	h.mu.Lock()
	for h.flushing && len(h.out.frames) > maxQueued {
		h.written.Wait()
	}
	h.mu.Unlock()
	return h.rw.Read(b)
}

// continueLocked handles the error of a frame. It returns false if the reader must end.
func (h *http2Conn) continueLocked(err error) bool {
	var ofStream http2.StreamError
	var ofConn http2.ConnectionError
	switch {
	case errors.As(err, &ofStream):
		h.ssp.countBadRequest(err)
		if id := ofStream.StreamID; id%2 == 1 {
			h.lastID = max(h.lastID, id) // the framer refuses header blocks before the reader sees them
		}
		h.resetStreamLocked(ofStream.StreamID, ofStream.Code)
		return true
	case errors.As(err, &ofConn):
		h.ssp.countBadRequest(err)
		_ = h.writer.WriteGoAway(h.lastID, http2.ErrCode(ofConn), nil)
	case errors.Is(err, http2.ErrFrameTooLarge):
		h.ssp.countBadRequest(err)
		_ = h.writer.WriteGoAway(h.lastID, http2.ErrCodeFrameSize, nil)
	default:
		h.out.frames = nil // the peer has gone
	}
	h.cutLocked()
	return false
}

// handleLocked handles one frame. The error is a StreamError or a ConnectionError.
func (h *http2Conn) handleLocked(frame http2.Frame) error {
	if h.closing || h.out.sealed {
		return nil
	}
	if _, ok := frame.(*http2.SettingsFrame); !ok && !h.settled {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if _, ok := frame.(*http2.MetaHeadersFrame); !ok && frame.Header().StreamID > h.lastID {
		switch frame.(type) {
		case *http2.DataFrame, *http2.WindowUpdateFrame, *http2.RSTStreamFrame: // of an idle stream
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		h.settled = true
		return h.takeSettingsLocked(f)
	case *http2.MetaHeadersFrame:
		return h.takeHeadersLocked(f)
	case *http2.DataFrame:
		return h.takeDataLocked(f)
	case *http2.WindowUpdateFrame:
		return h.takeWindowLocked(f)
	case *http2.RSTStreamFrame:
		h.ssp.count(func(c *Counters) { c.ResetsSeen++ })
		h.endStreamLocked(f.StreamID)
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = h.writer.WritePing(true, f.Data)
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // GOAWAY, PRIORITY and unknown frames
}

func (h *http2Conn) takeSettingsLocked(f *http2.SettingsFrame) error {
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
	if size, ok := f.Value(http2.SettingHeaderTableSize); ok {
		h.encoder.SetMaxDynamicTableSizeLimit(min(size, 4096))
	}
	_ = h.writer.WriteSettingsAck()
	if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
		for _, st := range h.streams {
			st.window += int64(size) - h.initial
			h.sendBodyLocked(st)
		}
		h.initial = int64(size)
	}
	return nil
}

func (h *http2Conn) takeWindowLocked(f *http2.WindowUpdateFrame) error {
	if f.StreamID != 0 {
		st := h.streams[f.StreamID]
		if st == nil {
			return nil
		}
		st.window += int64(f.Increment)
		if st.window > 1<<31-1 {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
		}
		h.sendBodyLocked(st)
		return nil
	}
	h.window += int64(f.Increment)
	if h.window > 1<<31-1 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	for _, st := range h.streams {
		h.sendBodyLocked(st)
	}
	return nil
}

// applyLocked announces the stream limit if it differs from the last one announced.
func (h *http2Conn) applyLocked(p *script) {
	limit := p.Connections.streamLimit()
	if int64(limit) == h.lastLimit {
		return
	}
	h.lastLimit = int64(limit)
	h.announced = append(h.announced, limit)
	settings := []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: limit}}
	if p.Connections.MaxField == 0 {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList})
	}
	_ = h.writer.WriteSettings(settings...)
	h.ssp.wg.Go(h.flush)
}

func (h *http2Conn) retireLocked() {
	if h.ssp.plan.Load().Connections.Announce {
		_ = h.writer.WriteGoAway(h.lastID, http2.ErrCodeNo, nil)
	}
	h.cutLocked()
	h.ssp.wg.Go(h.flush)
}

// flush writes the queued frames, or leaves them to a goroutine that is flushing. It yields before
// the first write, so that other streams can add their responses: one system call writes many of
// them. If the connection is leaving and has no stream, flush closes it.
func (h *http2Conn) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.flushing {
		return
	}
	h.flushing = true
	if len(h.out.frames) > 0 {
		h.mu.Unlock()
		runtime.Gosched()
		h.mu.Lock()
	}
	for len(h.out.frames) > 0 {
		frames := h.out.frames
		h.out.frames = h.spare[:0]
		h.mu.Unlock()
		_, err := h.rw.Write(frames)
		h.mu.Lock()
		h.spare = frames[:0]
		if err != nil {
			h.out = frameQueue{sealed: true}
		}
		h.written.Broadcast()
	}
	h.flushing = false
	if h.leaving && len(h.streams) == 0 {
		h.out.sealed = true
		h.closeLocked()
	}
}

// resetStreamLocked sends RST_STREAM and drops the stream.
func (h *http2Conn) resetStreamLocked(id uint32, code http2.ErrCode) {
	_ = h.writer.WriteRSTStream(id, code)
	h.endStreamLocked(id)
}

// endStreamLocked removes the stream from the connection, and wakes its goroutine. It may be called again.
func (h *http2Conn) endStreamLocked(id uint32) {
	st := h.streams[id]
	if st == nil {
		return
	}
	delete(h.streams, id)
	close(st.done)
	if st.plan != nil {
		h.endLocked()
	}
	if st.responding {
		h.buffers, st.response = st.response, reply{}
	}
}

// dropAboveLocked ignores the streams above last from now on. It ends the connection when the other
// streams have their responses.
func (h *http2Conn) dropAboveLocked(last uint32) {
	h.leaving = true
	h.ignoreAbove = min(h.ignoreAbove, last)
	for id, st := range h.streams {
		if id > last {
			h.endStreamLocked(id)
			h.ssp.unprocessed(st.Target)
		}
	}
}

// cutLocked ends the streams in flight. The next flush writes the queued frames and closes the connection.
func (h *http2Conn) cutLocked() {
	h.out.sealed, h.leaving = true, true
	for id := range h.streams {
		h.endStreamLocked(id)
	}
}
