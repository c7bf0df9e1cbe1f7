package reload

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/dial"
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
	descLoaded     = prometheus.NewDesc("adbuffer_config_last_reload_success_timestamp_seconds", "When the configuration in force was read, in seconds since 1970.", nil, nil)
	descDraining   = prometheus.NewDesc("adbuffer_pools_draining", "Pools that a reload replaced or removed, and that still have requests.", nil, nil)
	descHeadWait   = prometheus.NewDesc("adbuffer_pipeline_head_wait_seconds", "How long a pipelined response waited for the responses before it, in seconds.", []string{"ssp"}, nil)
	descHandshakes = prometheus.NewDesc("adbuffer_tls_handshakes_total", "TLS handshakes with an SSP, by whether they resumed an earlier session.", []string{"ssp", "kind"}, nil)
	descLookups    = prometheus.NewDesc("adbuffer_dns_lookups_total", "DNS look-ups of an SSP's names, by how they ended; while one fails, the last good response is used.", []string{"ssp", "result"}, nil)
	descAddrs      = prometheus.NewDesc("adbuffer_dns_addresses_dropped_total", "Addresses in DNS responses that adbuffer does not use: kinds that are never dialled, such as link-local (forbidden), or more than it uses for one name (too_many).", []string{"ssp", "reason"}, nil)
	descSent       = prometheus.NewDesc("adbuffer_ssp_sent_bytes_total", "Bytes written to the sockets of connections to an SSP, TLS included.", []string{"ssp"}, nil)
	descReceived   = prometheus.NewDesc("adbuffer_ssp_received_bytes_total", "Bytes read from the sockets of connections to an SSP, TLS included.", []string{"ssp"}, nil)
	descCipher     = prometheus.NewDesc("adbuffer_http2_cipher_refused_total", "TLS connections closed because the SSP chose HTTP/2 with a cipher suite that HTTP/2 prohibits; adbuffer then dials with HTTP/1.1 only.", []string{"ssp"}, nil)
	descCerts      = prometheus.NewDesc("adbuffer_ssp_client_certificate_reloads_total", "New versions of the client certificate for an SSP, by whether adbuffer could use them; while it cannot, the version before stays in use.", []string{"ssp", "result"}, nil)
)

// Describe implements prometheus.Collector.
func (v *Versions) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descConfig, descGood, descLoaded, descDraining, descHeadWait, descHandshakes, descLookups, descAddrs, descCipher, descCerts, descSent, descReceived} {
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
	ch <- d.headWait.Metric(descHeadWait, d.ssp)
	collectDials(ch, d.ssp, d.dial.Stats())
}

// collectDials sends what an SSP's dialer has counted.
func collectDials(ch chan<- prometheus.Metric, ssp string, s dial.Stats) {
	counter := func(desc *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), append([]string{ssp}, labels...)...)
	}
	counter(descSent, s.BytesSent)
	counter(descReceived, s.BytesReceived)
	counter(descHandshakes, s.HandshakesFull, "full")
	counter(descHandshakes, s.HandshakesResumed, "resumed")
	counter(descHandshakes, s.HandshakesFailed, "failed")
	counter(descLookups, s.Lookups-min(s.LookupsFailed, s.Lookups), "good")
	counter(descLookups, s.LookupsFailed, "failed")
	counter(descAddrs, s.AddrsRefused, "forbidden")
	counter(descAddrs, s.AddrsBeyond, "too_many")
	counter(descCipher, s.HTTP2Refused)
	counter(descCerts, s.CertsReloaded, "good")
	counter(descCerts, s.CertsBroken, "failed")
}
