package tracing

import (
	"encoding/hex"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

// Request is a client's request that is traced. On nil, the methods of Request, Leg and Attempt do
// nothing: the request is not traced.
type Request struct {
	tracer *Tracer
	parent trace.SpanContext // the client's span; not valid if there is none
	span   trace.SpanContext
	id     string // of the request; "" for none
}

// Begin returns the trace of a request that begins, or nil if it is not traced. traceParent is the
// client's field, whose trace is continued; nil for none. If trusted, the client's decision about
// sampling holds. id is the request's id. Begin on a nil Tracer returns nil.
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

// Observe counts a duration that ended at the time at. A traced request becomes the exemplar of its
// bucket.
func (r *Request) Observe(h *metrics.Histogram, d time.Duration, at time.Time) {
	if r == nil {
		h.ObserveDuration(d)
		return
	}
	h.ObserveTraced(d, r.span.TraceID(), at)
}

// Leg is one SSP's part of a request that is traced.
type Leg struct {
	request *Request
	span    trace.SpanContext
	ssp     string
	method  exchange.Method

	mu    sync.Mutex // guards the fields below: a hedge runs on a goroutine of its own
	begun int        // attempts; attempts beyond maxAttempts have no spans
	ended []attempt
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

// Attempt is an attempt that has begun.
type Attempt struct {
	leg  *Leg
	kind string
	span trace.SpanContext // the leg's for an attempt beyond maxAttempts
}

// attempt is an attempt that has ended.
type attempt struct {
	kind string
	span trace.SpanContext
	sent bool
	course
}

// Attempt begins an attempt. kind is the reason for another attempt, "" for the first one.
func (l *Leg) Attempt(kind string) *Attempt {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &Attempt{leg: l, kind: kind, span: l.span}
	l.begun++
	if l.begun <= maxAttempts {
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
	l.ended = append(l.ended, attempt{a.kind, a.span, sent, courseOf(ex, o, err)})
}

// Continued reports whether the client began the trace.
func (a *Attempt) Continued() bool { return a.leg.request.parent.IsValid() }

// AppendTraceParent appends the value of the field traceparent that the SSP gets: the attempt's
// span is the parent of the SSP's.
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
