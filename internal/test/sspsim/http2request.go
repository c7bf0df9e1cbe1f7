package sspsim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// takeHeadersLocked opens a stream, or ends a stream with its trailers.
func (h *http2Conn) takeHeadersLocked(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if st := h.streams[id]; st != nil {
		return h.takeTrailersLocked(st, f)
	}
	switch {
	case id%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case id <= h.lastID:
		// The SSP or the peer has ended this stream: RFC 9113, section 5.1.
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	h.lastID = id
	switch {
	case id > h.ignoreAbove:
		h.ssp.unprocessed(f.PseudoValue("path"))
		return nil
	case len(h.streams) >= int(h.limit) || len(h.streams) >= maxOpenStreams:
		h.ssp.unprocessed(f.PseudoValue("path"))
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream, Cause: errors.New("stream limit exceeded")}
	case f.Truncated:
		return streamError(id, fmt.Sprintf("header list is over %d bytes", maxHeaderList))
	}
	st := &stream{Request: Request{Stream: id, Protocol: "HTTP/2.0", Header: fieldsOf(f), length: -1},
		window: h.initial, done: make(chan struct{})}
	if err := st.parse(); err != nil {
		return err
	}
	if limit := h.ssp.plan.Load().Connections.MaxField; limit > 0 &&
		slices.ContainsFunc(st.Header, func(f Field) bool { return len(f.Name)+len(f.Value) > limit }) {
		_ = h.writer.WriteGoAway(id, http2.ErrCodeEnhanceYourCalm, nil)
		h.cutLocked()
		return nil
	}
	h.streams[id] = st
	if f.StreamEnded() {
		return h.endRequestLocked(st)
	}
	return nil
}

func streamError(id uint32, cause string) error {
	return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol, Cause: errors.New(cause)}
}

func fieldsOf(f *http2.MetaHeadersFrame) []Field {
	fields := make([]Field, len(f.Fields))
	for i, field := range f.Fields {
		fields[i] = Field{field.Name, field.Value}
	}
	return fields
}

// parse reads the fields. The framer has checked names, values and the order of pseudo-header
// fields. RFC 9113, sections 8.2.2 and 8.3.1.
func (st *stream) parse() error {
	var scheme, authority string
	for _, f := range st.Header {
		switch f.Name {
		case ":method":
			st.Method = f.Value
		case ":path":
			st.Target = f.Value
		case ":scheme":
			scheme = f.Value
		case ":authority", "host":
			if authority != "" && authority != f.Value {
				return streamError(st.Stream, "host is not :authority")
			}
			authority = f.Value
		case ":status", ":protocol":
			return streamError(st.Stream, f.Name+" in a request")
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return streamError(st.Stream, "connection-specific field "+f.Name)
		case "te":
			if f.Value != "trailers" {
				return streamError(st.Stream, "te other than trailers")
			}
		case "content-length":
			n, ok := parseLength(f.Value)
			if !ok || st.length >= 0 {
				return streamError(st.Stream, "content-length is not one number of at most 15 digits")
			}
			st.length = n
		case "x-request-id":
			if st.requestID == "" {
				st.requestID = f.Value
			}
		}
	}
	if !httpguts.ValidHeaderFieldName(st.Method) || scheme == "" || authority == "" || st.Target == "" ||
		st.Target[0] != '/' && st.Target != "*" {
		return streamError(st.Stream, "without a valid :method, :scheme, :authority or :path")
	}
	return nil
}

func (h *http2Conn) takeTrailersLocked(st *stream, f *http2.MetaHeadersFrame) error {
	switch {
	case st.plan != nil:
		return http2.StreamError{StreamID: st.Stream, Code: http2.ErrCodeStreamClosed}
	case !f.StreamEnded() || len(f.PseudoFields()) > 0 || f.Truncated:
		return streamError(st.Stream, "trailers that do not end the stream, or that are not trailers")
	}
	st.Trailer = fieldsOf(f)
	return h.endRequestLocked(st)
}

// takeDataLocked adds to a request's body and reopens the window.
func (h *http2Conn) takeDataLocked(f *http2.DataFrame) error {
	n := int(f.Length) // padding counts too
	h.received += n
	if h.received > connWindow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if h.received > connWindow-fullWindow {
		_ = h.writer.WriteWindowUpdate(0, uint32(h.received))
		h.received = 0
	}
	st := h.streams[f.StreamID]
	if st == nil {
		return nil // the SSP has ended the stream, which the peer may not know yet
	}
	if st.plan != nil {
		return http2.StreamError{StreamID: st.Stream, Code: http2.ErrCodeStreamClosed}
	}
	st.received += n
	if st.received > streamWindow {
		return http2.StreamError{StreamID: st.Stream, Code: http2.ErrCodeFlowControl}
	}
	if len(st.Body)+len(f.Data()) > maxRequestBody {
		h.ssp.countBadRequest(fmt.Errorf("body is over %d bytes", maxRequestBody))
		h.writeHeadersLocked(st.Stream, true, Field{":status", "413"})
		h.resetStreamLocked(st.Stream, http2.ErrCodeNo)
		return nil
	}
	st.Body = append(st.Body, f.Data()...)
	if f.StreamEnded() {
		return h.endRequestLocked(st)
	}
	if st.received > streamWindow-fullWindow {
		_ = h.writer.WriteWindowUpdate(st.Stream, uint32(st.received))
		st.received = 0
	}
	return nil
}

// endRequestLocked starts the response to a whole request.
func (h *http2Conn) endRequestLocked(st *stream) error {
	if st.length >= 0 && st.length != int64(len(st.Body)) {
		return streamError(st.Stream, fmt.Sprintf("content-length %d, but %d bytes of DATA", st.length, len(st.Body)))
	}
	s := h.ssp
	p := s.plan.Load()
	f := p.draw(h.rng, true)
	exclude := f.fault == faultGoAway && p.Faults.GoAway.Exclude
	if f.fault == faultRefuseStream || exclude && h.dispatched > st.Stream {
		// No GOAWAY can exclude a stream below one that is being processed.
		s.countFault(f.fault)
		s.unprocessed(st.Target)
		h.resetStreamLocked(st.Stream, http2.ErrCodeRefusedStream)
		return nil
	}
	if f.fault == faultGoAway {
		s.countFault(f.fault)
		last := max(st.Stream, h.dispatched)
		if exclude {
			last = h.dispatched
		}
		_ = h.writer.WriteGoAway(last, errCodes[cmp.Or(p.Faults.GoAway.Code, "NO_ERROR")], nil)
		h.dropAboveLocked(last)
		if exclude {
			return nil
		}
	}
	h.dispatched = max(h.dispatched, st.Stream)
	if limit := p.Connections.MaxRequests; limit > 0 {
		h.served++
		if h.served == limit {
			if p.Connections.Announce {
				_ = h.writer.WriteGoAway(h.dispatched, http2.ErrCodeNo, nil)
			}
			h.dropAboveLocked(h.dispatched)
		}
	}
	f.delay = p.Latency.slowed(f.delay, h.beginLocked())
	st.plan, st.fate = p, f
	if f.delay == 0 && f.fault != faultDrip && !s.watching() {
		h.respondLocked(st)
		return nil
	}
	s.wg.Go(func() { h.serveStream(st) })
	return nil
}

// unprocessed counts a request that is provably not processed.
func (s *SSP) unprocessed(target string) {
	s.count(func(c *Counters) { c.Unprocessed++ })
	if s.opts.OnUnprocessed != nil {
		s.opts.OnUnprocessed(target)
	}
}
