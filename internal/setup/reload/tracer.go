package reload

import (
	"context"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/wire/tracing"
)

// newTracer returns nil if tracing is off.
func (v *Versions) newTracer(c *config.Tracing) (*tracing.Tracer, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	return tracing.New(tracing.Options{
		Endpoint: c.Endpoint, Sample: c.Sample, Version: v.opts.AppVersion,
		Warn: func(err error) { v.opts.Peers.Warn("spans could not be sent; see tracing.endpoint", zap.Error(err)) },
	})
}

// closeTracer sends the last spans of a tracer, which may be nil.
func closeTracer(t *tracing.Tracer, log *zap.Logger) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("the last spans could not be sent; see tracing.endpoint", zap.Error(err))
	}
}
