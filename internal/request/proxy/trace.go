package proxy

import (
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/tracing"
)

// beginTrace decides, at its first call, whether r is traced. It is called when the whole request has arrived, or when
// r ends before that: refused, or abandoned by its client.
func (r *request) beginTrace(now time.Time) {
	if r.opts.Tracer == nil || r.traceDecided {
		return
	}
	r.traceDecided = true
	parent, _ := r.fields.Lookup("Traceparent")
	r.ssp.Trace = r.opts.Tracer.Begin(parent, r.peerTrusted(), r.requestID(), now)
}

// endTrace ends the trace of r, whose response is w, if r is traced.
func (r *request) endTrace(w *response, e *end) {
	if r.ssp.Trace == nil {
		return
	}
	t := tracing.RequestEnd{
		Method: "_OTHER", Route: r.stats(r.route).name, Scheme: "http", Path: logs.Visible(r.path()), Protocol: "1.1",
		Outcome: e.outcome, From: e.at.Add(-e.took), To: e.at,
	}
	switch m := string(r.method); m {
	case "GET", "HEAD", "POST":
		t.Method = m
	}
	if r.TLS {
		t.Scheme = "https"
	}
	switch {
	case r.fields.HTTP2:
		t.Protocol = "2"
	case r.fields.HTTP10:
		t.Protocol = "1.0"
	}
	if e.outcome != exchange.ClientGone {
		t.Status = w.Status
	}
	r.ssp.Trace.Ended(&t)
}
