package sspsim

import (
	"runtime"

	"golang.org/x/net/http2"
)

// flush writes the queued frames, or leaves them to a goroutine that is flushing. It yields before
// the first write, so that other streams can add their responses: one system call writes many of
// them. If the connection is leaving and has no stream, flush closes it.
func (h *http2Conn) flush() {
	h.mu.Lock()
	if h.flushing {
		h.mu.Unlock()
		return
	}
	h.flushing = true
	if len(h.out) > 0 {
		h.mu.Unlock()
		runtime.Gosched()
		h.mu.Lock()
	}
	for len(h.out) > 0 {
		out := h.out
		h.out = h.spare[:0]
		h.mu.Unlock()
		ok := h.write(out)
		h.mu.Lock()
		h.spare = out[:0]
		if !ok {
			h.out, h.sealed = h.out[:0], true
		}
		h.room.Broadcast()
	}
	h.flushing = false
	last := h.leaving && len(h.streams) == 0
	h.sealed = h.sealed || last
	h.mu.Unlock()
	if last {
		h.closeGracefully()
	}
}

// awaitWindow waits until the stream may send a byte. It returns false if the stream or the
// connection ends first. It is called with mu held, and releases it while it waits.
func (h *http2Conn) awaitWindow(st *stream) bool {
	blocked := func() bool {
		return h.canSend(st) && (h.window <= 0 || st.window <= 0 || len(h.out) >= maxQueued)
	}
	for blocked() {
		h.mu.Unlock()
		h.flush()
		h.mu.Lock()
		if blocked() {
			h.room.Wait()
		}
	}
	return h.canSend(st)
}

// canSend reports whether neither the stream nor the connection has ended; mu is held.
func (h *http2Conn) canSend(st *stream) bool { return !h.sealed && h.streams[st.Stream] != nil }

// endStream ends a request that was processed, with success or not.
func (h *http2Conn) endStream(p *script, f *fate, st *stream, flush bool) {
	h.dropStream(st.Stream)
	if flush {
		h.flush()
	}
	h.end(p, f)
}

// dropStream is endStreamLocked with the lock.
func (h *http2Conn) dropStream(id uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endStreamLocked(id)
}

// endStreamLocked removes the stream from the connection and wakes the goroutines that wait for it.
// It may be called again.
func (h *http2Conn) endStreamLocked(id uint32) {
	if st := h.streams[id]; st != nil {
		delete(h.streams, id)
		close(st.done)
		h.room.Broadcast()
	}
}

// resetStream sends RST_STREAM and drops the stream.
func (h *http2Conn) resetStream(id uint32, code http2.ErrCode) {
	_ = h.control(func() { _ = h.writer.WriteRSTStream(id, code) })
	h.dropStream(id)
}

// refuseBody responds to a request whose body is too large, before its end.
func (h *http2Conn) refuseBody(st *stream) {
	_ = h.control(func() {
		h.writeHeaders(st.Stream, true, Field{":status", "413"})
	})
	h.resetStream(st.Stream, http2.ErrCodeNo)
}

func (h *http2Conn) sayGoAway(code http2.ErrCode, last uint32) {
	_ = h.control(func() { _ = h.writer.WriteGoAway(last, code, nil) })
}

// dropAbove ignores the streams above last from now on. It ends the connection when the other
// streams have their responses.
func (h *http2Conn) dropAbove(last uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = true
	h.goneFrom = min(h.goneFrom, last)
	for id, st := range h.streams {
		if id > last {
			h.endStreamLocked(id)
			h.ssp.unprocessed(st.Target)
		}
	}
}

// cutLocked ends the streams in flight. The next flush writes the queued frames and closes the connection.
func (h *http2Conn) cutLocked() {
	h.sealed, h.leaving = true, true
	for id := range h.streams {
		h.endStreamLocked(id)
	}
	h.room.Broadcast()
}

// sendUnsolicited sends a response on the stream ID that the peer would open next.
func (h *http2Conn) sendUnsolicited() {
	id := h.lastID + 2
	if h.lastID == 0 {
		id = 1
	}
	_ = h.control(func() {
		h.writeHeaders(id, false, Field{":status", "200"}, Field{"content-type", "text/plain"})
		_ = h.writer.WriteData(id, true, []byte(Poison))
		h.window -= int64(len(Poison))
	})
	h.flush()
}
