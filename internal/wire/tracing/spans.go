package tracing

import (
	"context"
	"net"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/wire/exchange"
)

// RequestEnd has the values for the span of a request.
type RequestEnd struct {
	Method   string
	Route    string
	Scheme   string
	Path     string // without the query
	Protocol string // of the client: 1.0, 1.1 or 2
	Status   int    // of the response; 0 = the client got no response
	Outcome  exchange.Outcome
	From, To time.Time // when the whole request had arrived, and when its response was ready
}

// Ended exports the request's span.
func (r *Request) Ended(e *RequestEnd) {
	if r == nil {
		return
	}
	all := []attribute.KeyValue{
		attribute.String("http.request.method", e.Method), attribute.String("url.scheme", e.Scheme), attribute.String("url.path", e.Path),
		attribute.String("network.protocol.name", "http"), attribute.String("network.protocol.version", e.Protocol),
		attribute.String("adbuffer.route", e.Route), attribute.String("adbuffer.outcome", e.Outcome.String()), attribute.String("adbuffer.request_id", r.id),
	}
	if e.Status > 0 {
		all = append(all, attribute.Int("http.response.status_code", e.Status))
	}
	s := span{tracer: r.tracer, ids: r.span, name: e.Method + " " + e.Route, kind: trace.SpanKindServer, from: e.From, to: e.To, attributes: all}
	if e.Outcome.IsFailure() {
		s.failure = e.Outcome.String()
		s.attributes = append(all, attribute.String("error.type", s.failure))
	}
	s.emit(r.parent)
}

// Ended exports the spans of the leg and of its attempts. ex is the leg's last exchange; its Times.Queued is when the
// leg began. err is nil if ex has a response.
func (l *Leg) Ended(ex *exchange.Exchange, o exchange.Outcome, err *exchange.Error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := resultOf(ex, o, err)
	all := append(c.attributes(l.method), attribute.String("adbuffer.ssp", l.ssp), attribute.Int("adbuffer.attempts", c.Attempts))
	if l.request.id != "" {
		all = append(all, attribute.String("adbuffer.request_id", l.request.id))
	}
	if more := l.begunAttempts - maxAttempts; more > 0 {
		all = append(all, attribute.Int("adbuffer.attempts_without_span", more))
	}
	t := l.request.tracer
	(&span{tracer: t, ids: l.span, name: "ssp " + l.ssp, kind: trace.SpanKindInternal, from: c.Times.Queued, to: c.Times.Done, failure: c.failure(), attributes: all}).emit(l.request.span)
	sent := 0
	for i := range l.endedAttempts {
		l.endedAttempts[i].emit(t, l, sent)
		if l.endedAttempts[i].sent {
			sent++
		}
	}
}

// emit exports the span of an attempt and the spans of its phases. An attempt that was not sent only waited for a place
// on a connection, so its span is named pending. sentBefore is the number of earlier attempts of the leg that were sent.
func (a *endedAttempt) emit(t *Tracer, l *Leg, sentBefore int) {
	x := &a.Times
	s := span{tracer: t, ids: a.span, name: "attempt", kind: trace.SpanKindClient, from: x.Queued, to: x.Done, failure: a.failure()}
	if !a.sent {
		s.name, s.kind = "pending", trace.SpanKindInternal
	}
	s.attributes = append(a.attributes(l.method), attribute.String("adbuffer.ssp", l.ssp))
	if a.kind != "" {
		s.attributes = append(s.attributes, attribute.String("adbuffer.retry", a.kind))
	}
	if a.sent && sentBefore > 0 {
		s.attributes = append(s.attributes, attribute.Int("http.request.resend_count", sentBefore))
	}
	s.emit(l.span)
	if x.Acquired.IsZero() {
		return
	}
	phase := func(parent trace.SpanContext, name string, from, to time.Time, all ...attribute.KeyValue) trace.SpanContext {
		return (&span{tracer: t, ids: newSpan(a.span.TraceID()), name: name, kind: trace.SpanKindInternal, from: from, to: to, attributes: all}).emit(parent)
	}
	// Of a dial, only the durations of its phases are recorded. It ended when the place was acquired.
	pending := phase(a.span, "pending", x.Queued, x.Acquired)
	if handshake := x.Acquired.Add(-x.TLS); x.TCP > 0 {
		phase(pending, "dial", handshake.Add(-x.TCP-x.DNS), handshake, attribute.Float64("adbuffer.dns_seconds", x.DNS.Seconds()))
		if x.TLS > 0 {
			phase(pending, "tls", handshake, x.Acquired)
		}
	}
	if !x.FirstByte.IsZero() {
		phase(a.span, "first_byte", x.Acquired, x.FirstByte)
	}
}

// result is how a leg or an attempt went: its exchange, outcome and error.
type result struct {
	exchange.Summary
	outcome exchange.Outcome
	err     *exchange.Error // nil if there is a response
}

func resultOf(ex *exchange.Exchange, o exchange.Outcome, err *exchange.Error) result {
	c := result{ex.Summary(), o, err}
	if err != nil {
		c.Status = 0
	}
	if c.Times.Done.IsZero() {
		c.Times.Done = time.Now()
	}
	return c
}

// failure returns the description of the error, or "" if there is none. Cancellation is not an error: another leg or
// attempt made this one unnecessary.
func (c *result) failure() string {
	if c.err == nil || c.outcome == exchange.Cancelled {
		return ""
	}
	if c.err.Detail == "" {
		return c.outcome.String()
	}
	return c.err.Detail // it never contains bytes of a request or a response
}

var protocolVersions = [exchange.Protocols]string{exchange.HTTP1: "1.1", exchange.HTTP1Pipelined: "1.1", exchange.HTTP2: "2"}

// attributes returns the attributes of OpenTelemetry's semantic conventions for HTTP clients, and
// adbuffer's own.
func (c *result) attributes(m exchange.Method) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("http.request.method", m.String()), attribute.String("adbuffer.outcome", c.outcome.String()),
		attribute.String("adbuffer.protocol", c.Protocol.String()), attribute.Bool("adbuffer.reused", c.Reused),
	}
	if version := protocolVersions[c.Protocol]; version != "" {
		all = append(all, attribute.String("network.protocol.name", "http"), attribute.String("network.protocol.version", version))
	}
	if host, port, err := net.SplitHostPort(c.Endpoint); err == nil {
		all = append(all, attribute.String("server.address", host))
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, attribute.Int("server.port", n))
		}
	}
	if c.Peer.IsValid() {
		all = append(all, attribute.String("network.peer.address", c.Peer.Addr().String()), attribute.Int("network.peer.port", int(c.Peer.Port())))
	}
	if c.Status > 0 {
		all = append(all, attribute.Int("http.response.status_code", c.Status))
	}
	switch {
	case c.failure() != "":
		all = append(all, attribute.String("error.type", c.outcome.String()))
	case c.Status >= 400:
		all = append(all, attribute.String("error.type", strconv.Itoa(c.Status)))
	}
	return all
}

// span is a span that has ended.
type span struct {
	tracer     *Tracer
	ids        trace.SpanContext // ids of the trace and of the span
	name       string
	kind       trace.SpanKind
	from, to   time.Time
	failure    string // description of the error; "" = no error
	attributes []attribute.KeyValue
}

// idsKey is the context key under which emit passes the ids of a span to chosenIDs.
type idsKey struct{}

// emit exports the span, below parent if that is valid. It returns the span's ids.
func (s *span) emit(parent trace.SpanContext) trace.SpanContext {
	ctx := context.WithValue(context.Background(), idsKey{}, s.ids)
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	_, made := s.tracer.tracer.Start(ctx, s.name, trace.WithTimestamp(s.from), trace.WithSpanKind(s.kind), trace.WithAttributes(s.attributes...))
	if made.IsRecording() { // else the tracer is closed
		s.tracer.exporter.made.Add(1)
	}
	if s.failure != "" {
		made.SetStatus(codes.Error, s.failure)
	}
	made.End(trace.WithTimestamp(s.to))
	return s.ids
}

// chosenIDs is the SDK's generator of ids. It returns the ids that emit has chosen.
type chosenIDs struct{}

// NewIDs implements sdk.IDGenerator: it is called for a span without parent.
func (chosenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	own := ctx.Value(idsKey{}).(trace.SpanContext)
	return own.TraceID(), own.SpanID()
}

// NewSpanID implements sdk.IDGenerator: it is called for a span with a parent.
func (i chosenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := i.NewIDs(ctx)
	return span
}
