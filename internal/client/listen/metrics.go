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

	socketDescs      metrics.Descs
	descProxyErrors  = socketDescs.ClientErrors("proxy")
	descAcceptErrors = socketDescs.New("adbuffer_accept_errors_total", "Calls of accept that failed and were repeated, nearly always for lack of file descriptors or memory; the connections wait in the kernel.", "listener")
)

// NewCertificatesCollector returns a collector of the certificates of all listeners.
func NewCertificatesCollector(all []*Certificates) prometheus.Collector {
	return metrics.NewSource(certificateDescs, func(to metrics.Sink) {
		for _, c := range all {
			to, now := to.With(c.files.Name), c.current.Load()
			to.Bool(descGood, c.keeper.Valid())
			to.Gauge(descExpiry, float64(now.expiry().Unix()))
		}
	})
}

// proxyErrors counts connections of trusted peers that were refused because of their PROXY header.
type proxyErrors struct{ missing, malformed, timeout atomic.Uint64 }

// Metrics returns a collector of the sockets' metrics.
func (s *Sockets) Metrics() prometheus.Collector { return metrics.NewSource(socketDescs, s.collect) }

func (s *Sockets) collect(to metrics.Sink) {
	h := &s.Traffic.headers
	for _, r := range []struct {
		reason string
		n      *atomic.Uint64
	}{{"missing", &h.missing}, {"malformed", &h.malformed}, {"timeout", &h.timeout}} {
		to.CounterIf(s.Traffic.proxy.Load() != nil, descProxyErrors, r.n.Load(), r.reason)
	}
	for _, l := range []*Listener{s.Traffic, s.Admin} {
		to.Counter(descAcceptErrors, l.failed.Load(), l.options.Name)
	}
}
