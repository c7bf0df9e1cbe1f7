package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/metrics"
)

var (
	descs          metrics.Descs
	descConns      = descs.New("adbuffer_admin_connections", "Open connections to the admin listener.")
	descConnsLimit = descs.New("adbuffer_admin_connections_limit", "Connections to the admin listener that may be open.")
	descDropped    = descs.New("adbuffer_admin_connections_dropped_total", "Connections to the admin listener that were closed to make room for newer ones: the one that had waited longest for a whole request, the one whose request had taken longest if a request was in progress on all, or the slowest reader of /metrics.")
)

// Metrics returns a collector of the admin listener's own metrics.
func (s *Server) Metrics() prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		to.Gauge(descConns, float64(s.connections.count()))
		to.Gauge(descConnsLimit, maxConnections)
		to.Counter(descDropped, s.connections.dropped.Load()+s.scrapes.dropped.Load())
	})
}
