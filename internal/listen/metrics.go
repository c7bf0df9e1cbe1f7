package listen

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descGood = func(listener string) *prometheus.Desc {
		return prometheus.NewDesc("adbuffer_tls_certificate_reload_successful", "1 if the listener's certificate files were valid when they were last read, 0 if older certificates are still in use.", nil, prometheus.Labels{"listener": listener})
	}
	descExpiry = func(listener string) *prometheus.Desc {
		return prometheus.NewDesc("adbuffer_tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires, in seconds since 1970.", nil, prometheus.Labels{"listener": listener})
	}
	descLoaded = func(listener string) *prometheus.Desc {
		return prometheus.NewDesc("adbuffer_tls_certificate_reload_timestamp_seconds", "When the certificate in use was read, in seconds since 1970.", nil, prometheus.Labels{"listener": listener})
	}
	descProxyHeaders = prometheus.NewDesc("adbuffer_proxy_protocol_headers_total", "Connections from trusted peers that must start with a PROXY header, by result; only ok ones are served.", []string{"result"}, nil)
	descAcceptErrors = prometheus.NewDesc("adbuffer_accept_errors_total", "Calls of accept that failed for lack of file descriptors or memory; the connections wait in the kernel.", []string{"listener"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Certificates) Describe(ch chan<- *prometheus.Desc) {
	ch <- descGood(c.files.Name)
	ch <- descExpiry(c.files.Name)
	ch <- descLoaded(c.files.Name)
}

// Collect implements prometheus.Collector.
func (c *Certificates) Collect(ch chan<- prometheus.Metric) {
	good, now := 0.0, c.current.Load()
	if c.keeper.Good() {
		good = 1
	}
	ch <- prometheus.MustNewConstMetric(descGood(c.files.Name), prometheus.GaugeValue, good)
	ch <- prometheus.MustNewConstMetric(descExpiry(c.files.Name), prometheus.GaugeValue, float64(now.expiry().Unix()))
	ch <- prometheus.MustNewConstMetric(descLoaded(c.files.Name), prometheus.GaugeValue, float64(now.at.Unix()))
}

// proxyCounts are connections of trusted peers, by their PROXY header.
type proxyCounts struct{ ok, missing, malformed, timeout atomic.Uint64 }

// Describe implements prometheus.Collector.
func (s *Sockets) Describe(ch chan<- *prometheus.Desc) {
	ch <- descProxyHeaders
	ch <- descAcceptErrors
}

// Collect implements prometheus.Collector.
func (s *Sockets) Collect(ch chan<- prometheus.Metric) {
	h := &s.Traffic.headers
	for _, r := range []struct {
		result string
		n      *atomic.Uint64
	}{{"ok", &h.ok}, {"missing", &h.missing}, {"malformed", &h.malformed}, {"timeout", &h.timeout}} {
		ch <- prometheus.MustNewConstMetric(descProxyHeaders, prometheus.CounterValue, float64(r.n.Load()), r.result)
	}
	for _, l := range []*Listener{s.Traffic, s.Admin} {
		ch <- prometheus.MustNewConstMetric(descAcceptErrors, prometheus.CounterValue, float64(l.failed.Load()), l.options.Name)
	}
}
