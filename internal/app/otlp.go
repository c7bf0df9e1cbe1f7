package app

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/otlpmetrics"
	"adbuffer/internal/reload"
)

// lastMetricsLimit bounds the last export, which waits for the receiver while the pools close.
const lastMetricsLimit = 2 * time.Second

func (a *App) newMetricsSender() *otlpmetrics.Sender {
	return otlpmetrics.New(otlpmetrics.Options{
		Gather: func() (families []*dto.MetricFamily, err error) {
			a.versions.Look(func(*reload.Version) { families, err = a.registry.Gather() })
			return families, err
		},
		Version: Version, Instance: a.via,
		Warn: func(message string, err error) { a.peers.Logger().Warn(message, zap.Error(err)) },
	})
}

// sendMetrics sends the metrics as cfg says.
func (a *App) sendMetrics(cfg *config.Config) {
	if err := a.otlp.Apply(cfg.Metrics.OTLP); err != nil {
		a.log.Error("metrics are not sent", zap.Error(err))
	}
}

func (a *App) sendLastMetrics() {
	ctx, cancel := context.WithTimeout(context.Background(), lastMetricsLimit)
	defer cancel()
	a.otlp.Close(ctx)
}
