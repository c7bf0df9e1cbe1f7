package ssp

import (
	"testing"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/upstream"
)

func TestTheSSPGetsOurSpanInPlaceOfTheClients(t *testing.T) {
	const ours = "Traceparent: 00-01000000000000000000000000000000-0200000000000000-01\r\n"
	begins := upstream.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	continued := begins
	continued.Continued = true
	for _, c := range []struct {
		name, fields string
		trace        upstream.Trace
		o            httpheader.PolicyOptions
		want         string
	}{
		{"the client has none", "A: 1\r\n", begins, httpheader.PolicyOptions{}, "A: 1\r\n" + ours},
		{"the client's is continued", "A: 1\r\ntraceparent: 00-x\r\ntracestate: v=1\r\nB: 2\r\n", continued, httpheader.PolicyOptions{}, "A: 1\r\ntracestate: v=1\r\nB: 2\r\n" + ours},
		{"the client's is malformed", "TRACEPARENT: x\r\nTracestate: v=1\r\nTraceparent: y\r\nTraceparents: z\r\n", begins, httpheader.PolicyOptions{}, "Traceparents: z\r\n" + ours},
		{"removed", "A: 1\r\n", begins, httpheader.PolicyOptions{Remove: []string{"traceparent"}}, "A: 1\r\n"},
	} {
		b := append([]byte("/target"), c.fields...)
		if got := string(appendTrace(b, len("/target"), &c.trace, httpheader.NewPolicy(c.o))); got != "/target"+c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
