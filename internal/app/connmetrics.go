package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/histogram"
)

const ms = time.Millisecond

// newHeadWait has buckets from what is lost in the noise up to a usual deadline.
func newHeadWait() *histogram.Histogram {
	return histogram.Durations(ms/10, ms/4, ms/2, ms, 2*ms, 5*ms, 10*ms, 20*ms, 50*ms, 100*ms, 200*ms, 500*ms, 1000*ms)
}

// connCollector exports what belongs to connections and dialling, and to no
// pool.
type connCollector struct {
	dialers func() []*dialer
}

var (
	descHeadWait   = prometheus.NewDesc("adbuffer_pipeline_head_wait_seconds", "How long a pipelined answer had to wait for those before it, in seconds.", []string{"ssp"}, nil)
	descHandshakes = prometheus.NewDesc("adbuffer_tls_handshakes_total", "TLS handshakes with an SSP, by whether they took up an earlier session.", []string{"ssp", "kind"}, nil)
	descLookups    = prometheus.NewDesc("adbuffer_dns_lookups_total", "Look-ups of an SSP's names, by how they ended; while one fails, the last good answer is used.", []string{"ssp", "result"}, nil)
)

// Describe implements prometheus.Collector.
func (c connCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descHeadWait
	ch <- descHandshakes
	ch <- descLookups
}

// Collect implements prometheus.Collector.
func (c connCollector) Collect(ch chan<- prometheus.Metric) {
	for _, d := range c.dialers() {
		counter := func(desc *prometheus.Desc, v uint64, label string) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), d.ssp, label)
		}
		s := d.dial.Stats()
		ch <- d.headWait.Metric(descHeadWait, d.ssp)
		counter(descHandshakes, s.HandshakesFull, "full")
		counter(descHandshakes, s.HandshakesResumed, "resumed")
		counter(descHandshakes, s.HandshakesFailed, "failed")
		counter(descLookups, s.Lookups-min(s.LookupsFailed, s.Lookups), "good")
		counter(descLookups, s.LookupsFailed, "failed")
	}
}
