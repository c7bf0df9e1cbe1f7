package sspsim

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveStream waits for the latency of a request and sends its response, in a goroutine of the
// stream.
func (h *http2Conn) serveStream(p *script, f fate, st *stream) {
	defer h.endStream(p, &f, st, true)
	s := h.ssp
	if s.watching() {
		st.Time, st.Conn, st.TLS = time.Now(), h.id, h.tls
		f = s.watch(&st.Request, f)
	}
	if f.delay > 0 && !s.waitFor(f.delay, st.done) {
		return
	}
	if f.fault != faultUnsolicited && f.fault != faultGoAway { // these are counted when they are sent
		s.countFault(f.fault)
	}
	switch f.fault {
	case faultStall:
		select {
		case <-st.done:
		case <-s.done:
		}
	case faultReset:
		h.conn.reset()
	default:
		var r reply
		p.compose(&r, &f, &st.Request)
		h.mu.Lock()
		h.respond(p, &f, st, &r)
		h.mu.Unlock()
	}
}

// respondNow sends the response from the reader if the windows have room for all of it. Otherwise
// the reader would wait for a WINDOW_UPDATE that only the reader can receive.
func (h *http2Conn) respondNow(p *script, f *fate, st *stream) bool {
	p.compose(&h.reply, f, &st.Request)
	n := h.reply.body.len()
	h.mu.Lock()
	room := int64(n) <= min(h.window, st.window) && len(h.out)+n <= maxQueued
	if room {
		h.respond(p, f, st, &h.reply)
	}
	h.mu.Unlock()
	if room {
		h.endStream(p, f, st, false)
	}
	return room
}

// respond queues the response. The caller holds mu. respond releases it while it waits for room, and
// returns early if the stream or the connection ends.
func (h *http2Conn) respond(p *script, f *fate, st *stream, r *reply) {
	if !h.canSend(st) {
		return
	}
	if f.malformation == H2Garbage {
		h.out = append(h.out, poisonResponse...)
		return
	}
	isHead := st.Method == http.MethodHead
	n := r.body.len()
	if isHead || !r.hasBody {
		r.body = payload{}
	}
	if f.traits[traitInterim] {
		h.writeHeaders(st.Stream, false, Field{":status", "103"}, Field{"link", "</sim.css>; rel=preload"})
	}
	start := len(h.out)
	trailing := r.trailers && r.hasBody && !isHead
	if f.fault == faultResetStream && !p.Faults.ResetStream.AfterHead {
		r.body = payload{}
	} else {
		h.writeHeader(f, st, r, n, trailing)
	}
	if f.fault == faultCutHead || f.fault == faultCutBody && isHead {
		h.out = h.out[:start+(len(h.out)-start)/2]
		h.cutLocked()
		return
	}
	half := f.fault == faultCutBody || f.fault == faultResetStream
	if half {
		r.body.cut(n / 2)
	}
	sent := r.body.len()
	if !h.queueBody(p, f, st, r, trailing || half) {
		return
	}
	switch {
	case f.fault == faultCutBody:
		h.cutLocked()
		return
	case f.fault == faultResetStream:
		h.endStreamLocked(st.Stream)
		_ = h.writer.WriteRSTStream(st.Stream, errCodes[p.Faults.ResetStream.Code])
		return
	case trailing && h.canSend(st):
		h.writeHeaders(st.Stream, true, Field{"x-sim-trailer", "done"})
	}
	if f.fault == faultLeftover {
		_ = h.writer.WriteData(st.Stream, true, []byte(Poison))
		h.window -= int64(len(Poison))
	}
	// The stream must not count as open when another goroutine flushes its END_STREAM: the peer may
	// then open the next stream.
	h.endStreamLocked(st.Stream)
	h.ssp.countResponse(r.status, sent)
}

// writeHeader queues the header of the response; n is the length of its body.
func (h *http2Conn) writeHeader(f *fate, st *stream, r *reply, n int, trailing bool) {
	switch f.malformation {
	case H2SettingsBad:
		_ = h.writer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})
	case H2DataFirst:
		_ = h.writer.WriteData(st.Stream, false, []byte("early"))
	case H2WrongLength:
		n++
	}
	status := Field{":status", strconv.Itoa(r.status)}
	h.fields = h.fields[:0]
	if f.malformation != H2NoStatus && f.malformation != H2PseudoBehind {
		h.fields = append(h.fields, status)
	}
	for _, f := range r.fields {
		h.fields = append(h.fields, Field{strings.ToLower(f.Name), f.Value})
	}
	if r.hasBody {
		h.fields = append(h.fields, Field{"content-length", strconv.Itoa(n)})
	}
	switch f.malformation {
	case H2PseudoBehind:
		h.fields = append(h.fields, status)
	case H2Uppercase:
		h.fields = append(h.fields, Field{"X-Upper", "1"})
	case H2Connection:
		h.fields = append(h.fields, Field{"connection", "keep-alive"})
	}
	if r.trailers && r.hasBody {
		h.fields = append(h.fields, Field{"trailer", "x-sim-trailer"})
	}
	h.writeHeaders(st.Stream, r.body.len() == 0 && !trailing, h.fields...)
}

// queueBody queues the body. Its last frame ends the stream, unless more follows. It returns false if the
// stream or the connection ended first. The caller holds mu. queueBody unlocks it while it waits, and locks
// it again.
func (h *http2Conn) queueBody(p *script, f *fate, st *stream, r *reply, more bool) bool {
	limit, drip := frameSize, f.fault == faultDrip
	if drip {
		limit = min(limit, p.Faults.Drip.Bytes)
	}
	for r.body.len() > 0 {
		if !h.awaitWindow(st) {
			return false
		}
		piece := r.body.next(int(min(int64(limit), h.window, st.window)))
		h.window -= int64(len(piece))
		st.window -= int64(len(piece))
		last := r.body.len() == 0
		_ = h.writer.WriteData(st.Stream, last && !more, piece)
		if drip && !last {
			h.mu.Unlock()
			h.flush()
			ok := h.ssp.waitFor(time.Duration(p.Faults.Drip.Pause), st.done)
			h.mu.Lock()
			if !ok {
				return false
			}
		}
	}
	return true
}

// writeHeaders queues a header block.
func (h *http2Conn) writeHeaders(id uint32, endStream bool, fields ...Field) {
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
