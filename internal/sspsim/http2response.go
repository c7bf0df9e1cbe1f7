package sspsim

import (
	"net/http"
	"strconv"
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
		f = s.watch(h.record(st), f)
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
		id := st.ids()
		r, _ := p.compose(&f, &id, nil)
		h.mu.Lock()
		h.respondLocked(p, &f, st, &r, &id)
		h.mu.Unlock()
	}
}

// respondNow sends the response from the reader if the windows have room for all of it. Otherwise
// the reader would wait for a WINDOW_UPDATE that only the reader can receive.
func (h *http2Conn) respondNow(p *script, f *fate, st *stream) bool {
	id := st.ids()
	var r reply
	r, h.scratch = p.compose(f, &id, h.scratch)
	n := r.body.len()
	h.mu.Lock()
	room := int64(n) <= min(h.window, st.window) && len(h.out)+n <= maxQueued
	if room {
		h.respondLocked(p, f, st, &r, &id)
	}
	h.mu.Unlock()
	if room {
		h.endStream(p, f, st, false)
	}
	return room
}

func (st *stream) ids() ids {
	return ids{body: st.body, requestID: []byte(st.requestID), cb: queryValue([]byte(st.target), "cb"), bid: openRTBID(st.body)}
}

// respondLocked queues the response. It releases mu while it waits for room, and returns early if
// the stream or the connection ends.
func (h *http2Conn) respondLocked(p *script, f *fate, st *stream, r *reply, id *ids) {
	if !h.canSend(st) {
		return
	}
	if f.malformation == H2Garbage {
		h.out = append(h.out, poisonResponse...)
		return
	}
	head := st.method == http.MethodHead
	n := r.body.len()
	if head || !r.hasBody {
		r.body = payload{}
	}
	start := len(h.out)
	if f.traits[traitInterim] {
		h.openBlock("103")
		h.field("", "link", []byte("</sim.css>; rel=preload"))
		h.writeBlock(st.id, false)
		start = len(h.out)
	}
	h.writeHeader(p, f, st, r, id, n)
	if f.fault == faultCutHead || f.fault == faultCutBody && head {
		h.out = h.out[:start+(len(h.out)-start)/2]
		h.cutLocked()
		return
	}
	half := f.fault == faultCutBody || f.fault == faultResetStream
	if half {
		r.body.cut(n / 2)
	}
	sent := r.body.len()
	if !h.queueBody(p, f, st, r, half) {
		return
	}
	switch f.fault {
	case faultCutBody:
		h.cutLocked()
		return
	case faultResetStream:
		h.endStreamLocked(st.id)
		_ = h.writer.WriteRSTStream(st.id, errCodes[p.Faults.ResetStream.Code])
		return
	case faultLeftover:
		_ = h.writer.WriteData(st.id, true, []byte(Poison))
		h.window -= int64(len(Poison))
	}
	// The stream must not count as open when another goroutine flushes its END_STREAM: the peer may
	// then open the next stream.
	h.endStreamLocked(st.id)
	h.ssp.countResponse(r.status, sent)
}

// cutLocked ends the connection after the queued frames.
func (h *http2Conn) cutLocked() {
	h.sealed, h.leaving = true, true
	for id := range h.streams {
		h.endStreamLocked(id)
	}
}

// writeHeader queues the header of the response; n is the length of its body.
func (h *http2Conn) writeHeader(p *script, f *fate, st *stream, r *reply, id *ids, n int) {
	if f.fault == faultResetStream && !p.Faults.ResetStream.AfterHead {
		r.body = payload{}
		return
	}
	switch f.malformation {
	case H2SettingsBad:
		_ = h.writer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})
	case H2DataFirst:
		_ = h.writer.WriteData(st.id, false, []byte("early"))
	}
	status := strconv.Itoa(r.status)
	if f.malformation == H2NoStatus || f.malformation == H2PseudoBehind {
		h.openBlock("")
	} else {
		h.openBlock(status)
	}
	r.writeFields(h, p, f, id)
	if r.hasBody {
		if f.malformation == H2WrongLength {
			n++
		}
		h.field("", "content-length", strconv.AppendInt(nil, int64(n), 10))
	}
	switch f.malformation {
	case H2PseudoBehind:
		h.field("", ":status", []byte(status))
	case H2Uppercase:
		h.field("", "X-Upper", []byte("1"))
	case H2Connection:
		h.field("", "connection", []byte("keep-alive"))
	}
	if r.trailers && r.hasBody {
		h.field("", "trailer", []byte("x-sim-trailer"))
	}
	h.writeBlock(st.id, r.body.len() == 0 && !h.trailing(r, st))
}

// trailing reports whether a trailer ends the response.
func (h *http2Conn) trailing(r *reply, st *stream) bool {
	return r.trailers && r.hasBody && st.method != http.MethodHead
}

// queueBody queues the body and the end of the stream, unless a fault cuts the response. It returns
// false if the stream or the connection ended first. The caller holds mu. queueBody unlocks it while
// it waits, and locks it again.
func (h *http2Conn) queueBody(p *script, f *fate, st *stream, r *reply, cut bool) bool {
	limit, drip := frameSize, f.fault == faultDrip
	if drip {
		limit = min(limit, p.Faults.Drip.Bytes)
	}
	trailing := h.trailing(r, st)
	for r.body.len() > 0 {
		if !h.awaitWindow(st) {
			return false
		}
		piece := r.body.next(int(min(int64(limit), h.window, st.window)))
		h.window -= int64(len(piece))
		st.window -= int64(len(piece))
		last := r.body.len() == 0
		_ = h.writer.WriteData(st.id, last && !trailing && !cut, piece)
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
	if trailing && !cut && h.canSend(st) {
		h.openBlock("")
		h.field("", "x-sim-trailer", []byte("done"))
		h.writeBlock(st.id, true)
	}
	return true
}

// openBlock starts a header block. field adds to it and implements fieldWriter. writeBlock queues
// it.
func (h *http2Conn) openBlock(status string) {
	h.block.Reset()
	if status != "" {
		_ = h.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	}
}

func (h *http2Conn) field(_, lower string, value []byte) {
	// HPACK would index the padding and send almost nothing.
	_ = h.encoder.WriteField(hpack.HeaderField{Name: lower, Value: string(value), Sensitive: lower == padField})
}

func (h *http2Conn) writeBlock(id uint32, endStream bool) {
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
