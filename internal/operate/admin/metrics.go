package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

var (
	descs          metrics.Descs
	descConns      = descs.New("adbuffer_admin_connections", "Open connections to the admin listener.")
	descConnsLimit = descs.New("adbuffer_admin_connections_limit", "Connections to the admin listener that may be open.")
	descDropped    = descs.New("adbuffer_admin_connections_dropped_total", "Connections to the admin listener that were closed to make room for newer ones. The connection that has waited longest for a whole request is closed first. If all have a request in progress, it is the one whose request has taken longest. A scrape of /metrics too many closes the scrape that has been read for longest.")
)

// Metrics returns a collector of the admin listener's own metrics.
func (s *Server) Metrics() prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		to.Gauge(descConns, float64(s.connections.count()))
		to.Gauge(descConnsLimit, maxConnections)
		to.Counter(descDropped, s.connections.dropped.Load())
	})
}
