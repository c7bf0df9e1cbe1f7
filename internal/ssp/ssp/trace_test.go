package ssp

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/tracing"
)

func TestTheSSPGetsTheAttemptsSpanInPlaceOfTheClients(t *testing.T) {
	tracer, err := tracing.New(tracing.Options{Endpoint: "http://127.0.0.1:1", Sample: 1})
	testsupport.NoError(t, err)
	defer tracer.Close(t.Context())
	const clients = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		name, fields string
		parent       string
		o            header.PolicyOptions
		want         string
	}{
		{"the client has none", "A: 1\r\n", "", header.PolicyOptions{}, "A: 1\r\nTraceparent: OURS\r\n"},
		{"the client's is continued", "A: 1\r\ntraceparent: 00-x\r\ntracestate: v=1\r\nB: 2\r\n", clients, header.PolicyOptions{}, "A: 1\r\ntracestate: v=1\r\nB: 2\r\nTraceparent: OURS\r\n"},
		{"the client's is malformed", "TRACEPARENT: x\r\nTracestate: v=1\r\nTraceparent: y\r\nTraceparents: z\r\n", "x", header.PolicyOptions{}, "Traceparents: z\r\nTraceparent: OURS\r\n"},
		{"removed", "A: 1\r\n", "", header.PolicyOptions{Remove: []string{"traceparent"}}, "A: 1\r\n"},
	} {
		a := tracer.Begin([]byte(c.parent), true, nil, time.Now()).Leg("openx", exchange.GET).Attempt("")
		ours := string(a.AppendTraceParent(nil))
		testsupport.True(t, c.parent != clients || ours[:36] == clients[:36] && ours[36:] != clients[36:], "%s: adbuffer's span is %s", c.name, ours)
		b := append([]byte("/target"), c.fields...)
		got, want := string(appendTrace(b, len("/target"), a, header.NewPolicy(c.o))), "/target"+strings.ReplaceAll(c.want, "OURS", ours)
		testsupport.True(t, got == want, "%s: %q, want %q", c.name, got, want)
	}
}
