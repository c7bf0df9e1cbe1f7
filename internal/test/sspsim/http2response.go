package sspsim

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveStream waits for the latency of a request and sends its response, in a goroutine of the
// stream.
func (h *http2Conn) serveStream(st *stream) {
	s, p, f := h.ssp, st.plan, st.fate
	if s.watching() {
		st.Time, st.Conn, st.TLS = time.Now(), h.id, h.tls
		f = s.watch(&st.Request, f)
	}
	if f.delay > 0 && !s.waitFor(f.delay, st.done) {
		return
	}
	h.mu.Lock()
	st.fate = f
	h.respondLocked(st)
	for st.held > 0 {
		h.mu.Unlock()
		h.flush()
		if !s.waitFor(p.dripPause(), st.done) {
			return
		}
		h.mu.Lock()
		st.held = max(0, st.held-p.dripBytes())
		h.sendBodyLocked(st)
	}
	h.mu.Unlock()
	h.flush()
}

// respondLocked queues the response, as far as the windows allow.
func (h *http2Conn) respondLocked(st *stream) {
	p, f, r := st.plan, &st.fate, &st.response
	if h.streams[st.Stream] == nil {
		return // the stream or the connection has ended
	}
	if f.fault != faultGoAway { // it was counted when it was sent
		h.ssp.countFault(f.fault)
	}
	switch {
	case f.fault == faultStall:
		return
	case f.fault == faultReset:
		h.reset()
		return
	case f.malformation == H2Garbage:
		_, _ = h.out.Write(poisonResponse)
		h.endStreamLocked(st.Stream)
		return
	}
	*r, h.buffers = h.buffers, reply{}
	p.compose(r, f, &st.Request)
	isHead := st.Method == http.MethodHead
	st.unsent = r.body
	if isHead || !r.hasBody || f.fault == faultResetStream && !p.Faults.ResetStream.AfterHead {
		st.unsent = nil
	}
	trailers := r.trailers && r.hasBody && !isHead
	if f.traits[traitInterim] {
		h.writeHeadersLocked(st.Stream, false, Field{":status", "103"}, Field{"link", "</sim.css>; rel=preload"})
	}
	start := len(h.out.frames)
	if f.fault != faultResetStream || p.Faults.ResetStream.AfterHead {
		h.writeHeaderLocked(st, len(st.unsent) == 0 && !trailers)
	}
	if f.fault == faultCutHead || f.fault == faultCutBody && isHead {
		h.out.frames = h.out.frames[:start+(len(h.out.frames)-start)/2]
		h.cutLocked()
		return
	}
	isCut := f.fault == faultCutBody || f.fault == faultResetStream
	if isCut {
		st.unsent = st.unsent[:len(st.unsent)/2]
	}
	st.trailing = trailers || isCut
	if f.fault == faultDrip {
		st.held = max(0, len(st.unsent)-p.dripBytes())
	}
	st.responding = true
	h.sendBodyLocked(st)
}

// writeHeaderLocked queues the header of the response.
func (h *http2Conn) writeHeaderLocked(st *stream, endStream bool) {
	r, malformation, length := &st.response, st.fate.malformation, len(st.response.body)
	switch malformation {
	case H2SettingsBad:
		_ = h.writer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})
	case H2DataFirst:
		_ = h.writer.WriteData(st.Stream, false, []byte("early"))
	case H2WrongLength:
		length++
	}
	fields := make([]Field, 0, 8)
	status := Field{":status", strconv.Itoa(r.status)}
	if malformation != H2NoStatus && malformation != H2PseudoBehind {
		fields = append(fields, status)
	}
	for _, f := range r.fields {
		fields = append(fields, Field{strings.ToLower(f.Name), f.Value})
	}
	if r.hasBody {
		fields = append(fields, Field{"content-length", strconv.Itoa(length)})
	}
	switch malformation {
	case H2PseudoBehind:
		fields = append(fields, status)
	case H2Uppercase:
		fields = append(fields, Field{"X-Upper", "1"})
	case H2Connection:
		fields = append(fields, Field{"connection", "keep-alive"})
	}
	if r.trailers && r.hasBody {
		fields = append(fields, Field{"trailer", "x-sim-trailer"})
	}
	h.writeHeadersLocked(st.Stream, endStream, fields...)
}

// sendBodyLocked queues as much of the response's body as the windows and Drip allow. With the last byte it
// ends the stream.
func (h *http2Conn) sendBodyLocked(st *stream) {
	if !st.responding || h.streams[st.Stream] == nil {
		return
	}
	for len(st.unsent) > 0 {
		n := min(len(st.unsent)-st.held, frameSize, int(min(h.window, st.window)))
		if n <= 0 {
			return
		}
		piece := st.unsent[:n]
		st.unsent = st.unsent[n:]
		h.window -= int64(n)
		st.window -= int64(n)
		_ = h.writer.WriteData(st.Stream, len(st.unsent) == 0 && !st.trailing, piece)
	}
	p, f := st.plan, &st.fate
	switch {
	case f.fault == faultCutBody:
		h.cutLocked()
		return
	case f.fault == faultResetStream:
		h.resetStreamLocked(st.Stream, errCodes[cmp.Or(p.Faults.ResetStream.Code, "INTERNAL_ERROR")])
		return
	case st.trailing:
		h.writeHeadersLocked(st.Stream, true, Field{"x-sim-trailer", "done"})
	}
	if f.fault == faultLeftover {
		_ = h.writer.WriteData(st.Stream, true, []byte(Poison))
		h.window -= int64(len(Poison))
	}
	h.ssp.countResponse(st.response.status)
	h.endStreamLocked(st.Stream)
}

// writeHeadersLocked queues a header block.
func (h *http2Conn) writeHeadersLocked(id uint32, endStream bool, fields ...Field) {
	h.block.Reset()
	for _, f := range fields {
		// HPACK would index the padding and send almost nothing.
		_ = h.encoder.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value, Sensitive: f.Name == "x-pad"})
	}
	block := h.block.Bytes()
	n := min(len(block), frameSize)
	_ = h.writer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n],
		EndStream: endStream, EndHeaders: n == len(block)})
	for n < len(block) {
		part := block[n:min(n+frameSize, len(block))]
		n += len(part)
		_ = h.writer.WriteContinuation(id, n == len(block), part)
	}
}
