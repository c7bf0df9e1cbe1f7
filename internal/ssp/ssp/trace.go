package ssp

import (
	"bytes"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
	"adbuffer/internal/wire/tracing"
)

const traceParent = "Traceparent"

// appendTrace makes the attempt's span the traceparent among the fields b[from:]. If a trace begins
// here, it removes the client's tracestate.
func appendTrace(b []byte, from int, a *tracing.Attempt, p *header.Policy) []byte {
	b = cutField(b, from, traceParent)
	if !a.Continued() {
		b = cutField(b, from, "Tracestate")
	}
	if p.Drops(traceParent) {
		return b
	}
	b = append(b, traceParent+": "...)
	return append(a.AppendTraceParent(b), "\r\n"...)
}

// cutField removes the fields of this name from the lines b[from:].
func cutField(b []byte, from int, name string) []byte {
	for at := from; at < len(b); {
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			break
		}
		next := at + end + len("\r\n")
		if line := b[at:next]; len(line) > len(name) && line[len(name)] == ':' && syntax.EqualFold(line[:len(name)], name) {
			b = append(b[:at], b[next:]...)
			continue
		}
		at = next
	}
	return b
}
