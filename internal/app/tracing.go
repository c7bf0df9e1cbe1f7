package app

import (
	"context"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

// startTracing makes spans of every SSP's requests, where that is configured.
func (a *App) startTracing() error {
	if a.cfg.Tracing.Endpoint == "" {
		return nil
	}
	t, err := tracing.New(tracing.Options{Endpoint: a.cfg.Tracing.Endpoint, Sample: a.cfg.Tracing.Sample, Version: Version})
	if err != nil {
		return err
	}
	a.tracer = t
	a.observers.traced = func(s *ssp.SSP) ssp.Observer { return traced(t, s.Name()) }
	for _, s := range a.ssps {
		a.observers.attach(s)
	}
	return a.registry.Register(t)
}

func traced(t *tracing.Tracer, name string) ssp.Observer {
	return func(r *ssp.Request, ex *upstream.Exchange, o upstream.Outcome, err *upstream.Error) {
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

// stopTracing sends what is left.
func (a *App) stopTracing() {
	if a.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := a.tracer.Close(ctx); err != nil {
		a.log.Warn("the last spans could not be sent; see tracing.endpoint", zap.Error(err))
	}
}
