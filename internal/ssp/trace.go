package ssp

import (
	"bytes"
	"encoding/hex"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/httpsyntax"
	"adbuffer/internal/upstream"
)

// BeginTrace returns the span of a request to an SSP that begins.
type BeginTrace func(r *Request) upstream.Trace

// TraceWith sets what begins the span of each request from now on, nil for no tracing.
func (s *SSP) TraceWith(f BeginTrace) {
	if f == nil {
		s.beginTrace.Store(nil)
		return
	}
	s.beginTrace.Store(&f)
}

const traceParent = "Traceparent"

// appendTrace makes t the traceparent among the fields b[from:]. A trace that begins here keeps no tracestate of another.
func appendTrace(b []byte, from int, t *upstream.Trace, p *httpheader.Policy) []byte {
	b = cutField(b, from, traceParent)
	if !t.Continued {
		b = cutField(b, from, "Tracestate")
	}
	if p.Drops(traceParent) {
		return b
	}
	b = append(b, traceParent+": 00-"...)
	b = hex.AppendEncode(b, t.TraceID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, t.SpanID[:])
	return append(b, "-01\r\n"...)
}

// cutField removes the fields of this name from the lines b[from:].
func cutField(b []byte, from int, name string) []byte {
	for at := from; at < len(b); {
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			break
		}
		next := at + end + len("\r\n")
		if line := b[at:next]; len(line) > len(name) && line[len(name)] == ':' && httpsyntax.EqualFold(line[:len(name)], name) {
			b = append(b[:at], b[next:]...)
			continue
		}
		at = next
	}
	return b
}
