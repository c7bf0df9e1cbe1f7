package reload

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/tracing"
)

var (
	descs        metrics.Descs
	descConfig   = descs.New("adbuffer_config_info", "1, with a hash of the effective configuration.", "hash")
	descGood     = descs.New("adbuffer_config_last_reload_successful", "1 if the last reload succeeded, 0 if it was refused because of an error in the configuration, a change that needs a restart, or its trial on the traffic.")
	descLoaded   = descs.New("adbuffer_config_last_reload_success_timestamp_seconds", "When the configuration in force was read, in seconds since 1970.")
	descDraining = descs.New("adbuffer_pools_draining", "Pools that a reload replaced or removed, and that still have requests.")
	descHeadWait = descs.New("adbuffer_pipeline_head_wait_seconds", "How long a pipelined response waited for the responses before it, in seconds.", "ssp")
)

// Metrics returns a collector of v's metrics. A new pool starts its counters of connections at 0, and a
// new tracer its counters of spans.
func (v *Versions) Metrics() prometheus.Collector {
	return metrics.NewSource(slices.Concat(descs, dial.Descs, tracing.Descs), v.collect)
}

func (v *Versions) collect(to metrics.Sink) {
	current := v.Current()
	to.Gauge(descConfig, 1, current.Hash())
	to.Bool(descGood, v.failed.Load() == nil)
	to.Gauge(descLoaded, float64(current.Loaded.Unix()))
	to.Gauge(descDraining, float64(v.leftovers.Load()))
	for _, p := range current.Parts {
		of := to.With(p.Config.Name)
		of.HistogramIf(p.dialer.dial.Protocol() == exchange.HTTP1Pipelined, descHeadWait, p.dialer.headWait)
		p.dialer.dial.Collect(of)
	}
	if current.Tracer != nil {
		current.Tracer.Collect(to)
	}
}
