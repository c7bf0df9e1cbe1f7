package adminview

import (
	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

// begins returns what begins the span of a request to an SSP.
func begins(t *tracing.Tracer) ssp.BeginTrace {
	return func(r *ssp.Request) upstream.Trace {
		parent, _ := r.Fields.Lookup("Traceparent")
		return t.Begin(parent)
	}
}

// traced returns an observer that makes a span of each exchange.
func traced(t *tracing.Tracer, name string) ssp.Observer {
	return func(_ *ssp.SSP, r *ssp.Request, ex *upstream.Exchange, o upstream.Outcome, err *upstream.Error) {
		e := tracing.Exchange{
			SSP: name, RequestID: r.Fields.RequestID(), Method: r.Method, Protocol: ex.Protocol, Reused: ex.Reused, Outcome: o, Err: err, Times: ex.Times,
			Trace: ex.Trace, Endpoint: ex.Endpoint, Attempts: ex.Attempts,
		}
		if err == nil {
			e.Status = ex.Response.Status
		}
		e.TraceParent, _ = r.Fields.Lookup("Traceparent")
		t.Ended(&e)
	}
}
