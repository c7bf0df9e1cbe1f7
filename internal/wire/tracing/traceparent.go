package tracing

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

// parseTraceParent parses a traceparent field: "00-<trace id>-<span id>-<flags>", in lower-case hexadecimal digits. A
// version above 00 may have more bytes after these. ok is false for any other value, which must be treated as if
// there were no field. W3C Trace Context, section 3.2.
func parseTraceParent(v []byte) (parent trace.SpanContext, ok bool) {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(v) < length || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return parent, false
	}
	for i, c := range v[:length] {
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return parent, false
		}
	}
	switch {
	case v[0] == 'f' && v[1] == 'f': // forbidden
		return parent, false
	case len(v) == length:
	case v[0] == '0' && v[1] == '0' || v[length] != '-':
		return parent, false
	}
	var (
		id    trace.TraceID
		span  trace.SpanID
		flags [1]byte
	)
	hex.Decode(id[:], v[3:35])     //nolint:errcheck // the digits were checked
	hex.Decode(span[:], v[36:52])  //nolint:errcheck // the digits were checked
	hex.Decode(flags[:], v[53:55]) //nolint:errcheck // the digits were checked
	parent = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	})
	return parent, parent.IsValid() // false if all zeros
}
