package reload

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/histogram"
	"adbuffer/internal/tracing"
)

const ms = time.Millisecond

// newHeadWait has buckets from what is lost in the noise up to a usual deadline.
func newHeadWait() *histogram.Histogram {
	return histogram.Durations(ms/10, ms/4, ms/2, ms, 2*ms, 5*ms, 10*ms, 20*ms, 50*ms, 100*ms, 200*ms, 500*ms, 1000*ms)
}

var (
	descConfig     = prometheus.NewDesc("adbuffer_config_info", "1, with a hash of the effective configuration.", []string{"hash"}, nil)
	descGood       = prometheus.NewDesc("adbuffer_config_last_reload_successful", "1 if the configuration was valid when it was last read, 0 if not.", nil, nil)
	descLoaded     = prometheus.NewDesc("adbuffer_config_last_reload_timestamp_seconds", "When the configuration in force was read, in seconds since 1970.", nil, nil)
	descDraining   = prometheus.NewDesc("adbuffer_pools_draining", "Pools that a reload replaced or removed, and that still have requests.", nil, nil)
	descHeadWait   = prometheus.NewDesc("adbuffer_pipeline_head_wait_seconds", "How long a pipelined response waited for the responses before it, in seconds.", []string{"ssp"}, nil)
	descHandshakes = prometheus.NewDesc("adbuffer_tls_handshakes_total", "TLS handshakes with an SSP, by whether they resumed an earlier session.", []string{"ssp", "kind"}, nil)
	descLookups    = prometheus.NewDesc("adbuffer_dns_lookups_total", "DNS look-ups of an SSP's names, by how they ended; while one fails, the last good response is used.", []string{"ssp", "result"}, nil)
)

// Describe implements prometheus.Collector.
func (v *Versions) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descConfig, descGood, descLoaded, descDraining, descHeadWait, descHandshakes, descLookups} {
		ch <- d
	}
	(*tracing.Tracer)(nil).Describe(ch)
}

// Collect implements prometheus.Collector. Counters of connections begin at 0 with
// each new pool, and those of spans with each new tracer.
func (v *Versions) Collect(ch chan<- prometheus.Metric) {
	current := v.Current()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	succeeded := 0.0
	if v.succeeded.Load() {
		succeeded = 1
	}
	gauge(descConfig, 1, current.Hash)
	gauge(descGood, succeeded)
	gauge(descLoaded, float64(current.Loaded.Unix()))
	gauge(descDraining, float64(v.leftovers.Load()))
	for _, p := range current.Parts {
		p.dialer.collect(ch)
	}
	if current.Tracer != nil {
		current.Tracer.Collect(ch)
	}
}

func (d *dialer) collect(ch chan<- prometheus.Metric) {
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
