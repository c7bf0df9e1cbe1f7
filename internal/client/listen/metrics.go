package listen

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

var (
	certificateDescs metrics.Descs
	descGood         = certificateDescs.New("adbuffer_tls_certificate_reload_successful", "1 if the listener's certificate files were valid when they were last read, 0 if older certificates are still in use.", "listener")
	descExpiry       = certificateDescs.New("adbuffer_tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires, in seconds since 1970.", "listener")
	descLoaded       = certificateDescs.New("adbuffer_tls_certificate_reload_timestamp_seconds", "When the certificate in use was read, in seconds since 1970.", "listener")

	socketDescs      metrics.Descs
	descProxyHeaders = socketDescs.New("adbuffer_proxy_protocol_headers_total", "Connections from trusted peers that must start with a PROXY header, by result; only ok ones are served.", "result")
	descAcceptErrors = socketDescs.New("adbuffer_accept_errors_total", "Calls of accept that failed and were repeated, nearly always for lack of file descriptors or memory; the connections wait in the kernel.", "listener")
)

// NewCertificatesCollector returns a collector of the certificates of all listeners.
func NewCertificatesCollector(all []*Certificates) prometheus.Collector {
	return metrics.NewSource(certificateDescs, func(to metrics.Sink) {
		for _, c := range all {
			to, now := to.With(c.files.Name), c.current.Load()
			to.Bool(descGood, c.keeper.Valid())
			to.Gauge(descExpiry, float64(now.expiry().Unix()))
			to.Gauge(descLoaded, float64(now.at.Unix()))
		}
	})
}

// proxyCounts are connections of trusted peers, by their PROXY header.
type proxyCounts struct{ ok, missing, malformed, timeout atomic.Uint64 }

// Metrics returns a collector of the sockets' metrics.
func (s *Sockets) Metrics() prometheus.Collector { return metrics.NewSource(socketDescs, s.collect) }

func (s *Sockets) collect(to metrics.Sink) {
	h := &s.Traffic.headers
	for _, r := range []struct {
		result string
		n      *atomic.Uint64
	}{{"ok", &h.ok}, {"missing", &h.missing}, {"malformed", &h.malformed}, {"timeout", &h.timeout}} {
		to.CounterIf(s.Traffic.proxy.Load() != nil, descProxyHeaders, r.n.Load(), r.result)
	}
	for _, l := range []*Listener{s.Traffic, s.Admin} {
		to.Counter(descAcceptErrors, l.failed.Load(), l.options.Name)
	}
}
