package tracing

import (
	"encoding/hex"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

// Request is the trace of a client's request. Request, Leg and Attempt are nil if the request is not traced; most of
// their methods then do nothing.
type Request struct {
	tracer *Tracer
	parent trace.SpanContext // the client's span; invalid if the client sent none
	span   trace.SpanContext
	id     string // the request's id; may be ""
}

// Begin returns the trace of a new request, or nil if the request is not traced. traceParent is the client's field
// traceparent, whose trace the request continues; nil = no field. If trusted, the client decides whether the request
// is traced. id is the request's id. Begin on a nil Tracer returns nil.
func (t *Tracer) Begin(traceParent []byte, trusted bool, id []byte, now time.Time) *Request {
	if t == nil {
		return nil
	}
	parent, ok := parseTraceParent(traceParent)
	if !t.sampler.sample(parent, trusted, now) {
		return nil
	}
	traceID := parent.TraceID()
	if !ok {
		random(traceID[:])
	}
	return &Request{tracer: t, parent: parent, span: newSpan(traceID), id: string(id)}
}

// Observe counts d, which ended at the time at, in h. If r is not nil, its trace becomes the exemplar of d's bucket.
func (r *Request) Observe(h *metrics.Histogram, d time.Duration, at time.Time) {
	if r == nil {
		h.ObserveDuration(d)
		return
	}
	h.ObserveTraced(d, r.span.TraceID(), at)
}

// Leg is the trace of one SSP's part of a request.
type Leg struct {
	request *Request
	span    trace.SpanContext
	ssp     string
	method  exchange.Method

	mu            sync.Mutex // guards the fields below: a hedge runs on a goroutine of its own
	begunAttempts int        // number of attempts; those beyond maxAttempts have no spans
	endedAttempts []endedAttempt
}

// maxAttempts bounds the spans of a leg, since a request may be sent dozens of times to an SSP that
// refuses it.
const maxAttempts = 16

// Leg begins the leg of an SSP.
func (r *Request) Leg(ssp string, m exchange.Method) *Leg {
	if r == nil {
		return nil
	}
	return &Leg{request: r, span: newSpan(r.span.TraceID()), ssp: ssp, method: m}
}

// Attempt is the trace of an attempt that has not ended.
type Attempt struct {
	leg  *Leg
	kind string
	span trace.SpanContext // the leg's span for an attempt beyond maxAttempts
}

// endedAttempt is an attempt that has ended.
type endedAttempt struct {
	kind string
	span trace.SpanContext
	sent bool
	result
}

// Attempt begins an attempt. kind is the reason for it; "" for the first attempt.
func (l *Leg) Attempt(kind string) *Attempt {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &Attempt{leg: l, kind: kind, span: l.span}
	l.begunAttempts++
	if l.begunAttempts <= maxAttempts {
		a.span = newSpan(l.span.TraceID())
	}
	return a
}

// Ended records how the attempt ended. sent means that bytes were sent to the SSP. err is nil if ex
// has a response.
func (a *Attempt) Ended(ex *exchange.Exchange, sent bool, o exchange.Outcome, err *exchange.Error) {
	if a == nil || a.span.Equal(a.leg.span) {
		return
	}
	l := a.leg
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endedAttempts = append(l.endedAttempts, endedAttempt{a.kind, a.span, sent, resultOf(ex, o, err)})
}

// Continued reports whether the trace continues a trace of the client.
func (a *Attempt) Continued() bool { return a.leg.request.parent.IsValid() }

// AppendTraceParent appends the value of the field traceparent for the SSP. It names the attempt's span as the parent
// of the SSP's span.
func (a *Attempt) AppendTraceParent(b []byte) []byte {
	traceID, spanID := a.span.TraceID(), a.span.SpanID()
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, traceID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, spanID[:])
	return append(b, "-01"...)
}

func newSpan(id trace.TraceID) trace.SpanContext {
	var span trace.SpanID
	random(span[:])
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled})
}
