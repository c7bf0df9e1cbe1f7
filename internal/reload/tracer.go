package reload

import (
	"context"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/tracing"
)

// newTracer returns nil if tracing is off.
func (v *Versions) newTracer(c *config.Tracing) (*tracing.Tracer, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	return tracing.New(tracing.Options{
		Endpoint: c.Endpoint, Sample: c.Sample, MaxPerSecond: c.MaxPerSecond, Version: v.opts.AppVersion,
		Warn: func(err error) { v.opts.Peers.Warn("spans could not be sent; see tracing.endpoint", zap.Error(err)) },
	})
}

// closeTracer sends the last spans of a tracer, which may be nil.
func (v *Versions) closeTracer(t *tracing.Tracer) {
	if err := closeTracer(t); err != nil {
		v.opts.Log.Warn("the last spans could not be sent; see tracing.endpoint", zap.Error(err))
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
