package cpushare

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

var (
	descs        metrics.Descs
	descSeconds  = descs.New("adbuffer_background_cpu_seconds_total", "CPU time of work that no client request asked for, by kind of work: TLS handshakes of clients (client_handshake), at the admin listener (admin_handshake) and with SSPs (ssp_handshake), texts of /metrics (scrape), large compressed bodies (decode), and dry runs on a sample of the traffic (dry_run). Measured with the wall clock while the work computes.", "work")
	descTimeouts = descs.LimitRefused("background_cpu")
)

// Metrics returns a collector of the share's metrics.
func (s *Share) Metrics() prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		s.mu.Lock()
		n := s.counts
		s.mu.Unlock()
		timeouts := uint64(0)
		for w := range works {
			to.FloatCounter(descSeconds, n[w].seconds, w.String())
			timeouts += n[w].timeouts
		}
		to.Counter(descTimeouts, timeouts)
	})
}
