package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

// traced makes spans of an SSP's requests.
func traced(t *tracing.Tracer, name string) ssp.Observer {
	return func(_ *ssp.SSP, r *ssp.Request, ex *upstream.Exchange, o upstream.Outcome, err *upstream.Error) {
		e := tracing.Exchange{
			SSP: name, Method: r.Method, Protocol: ex.Protocol, Reused: ex.Reused, Outcome: o, Err: err, Times: ex.Times,
		}
		if err == nil {
			e.Status = ex.Answer.Status
		}
		e.TraceParent, _ = r.Fields.Lookup("Traceparent")
		t.Ended(&e)
	}
}

// spanCollector exports what the tracer counts, while there is one; of another
// it starts at 0 again.
type spanCollector struct{ tracer func() *tracing.Tracer }

// Describe implements prometheus.Collector.
func (c spanCollector) Describe(ch chan<- *prometheus.Desc) { (*tracing.Tracer)(nil).Describe(ch) }

// Collect implements prometheus.Collector.
func (c spanCollector) Collect(ch chan<- prometheus.Metric) {
	if t := c.tracer(); t != nil {
		t.Collect(ch)
	}
}

// closeTracer sends what is left of a tracer, nil for none.
func (a *App) closeTracer(t *tracing.Tracer) {
	if err := closeTracer(t); err != nil {
		a.log.Warn("the last spans could not be sent; see tracing.endpoint", zap.Error(err))
	}
}

func closeTracer(t *tracing.Tracer) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return t.Close(ctx)
}
