package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

var (
	descs       metrics.Descs
	descDropped = descs.Dropped("admin")
)

// Metrics returns a collector of the admin listener's own metrics.
func (s *Server) Metrics() prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		to.Counter(descDropped, s.connections.dropped.Load())
	})
}
