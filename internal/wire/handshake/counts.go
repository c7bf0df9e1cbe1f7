package handshake

import (
	"crypto/tls"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

// Failures counts handshakes that failed, by reason.
type Failures [reasons]atomic.Uint64

// Add counts a handshake that failed.
func (f *Failures) Add(r Reason) { f[r].Add(1) }

// Series writes a counter for each reason.
func (f *Failures) Series(to metrics.Sink, d *prometheus.Desc) {
	for r, name := range reasonNames {
		to.Counter(d, f[r].Load(), name)
	}
}

// VersionCounts counts handshakes that succeeded, by TLS version.
type VersionCounts [len(versions)]atomic.Uint64

// Add counts a handshake that succeeded.
func (v *VersionCounts) Add(state *tls.ConnectionState) {
	if i := int(state.Version) - tls.VersionTLS12; i >= 0 && i < len(v) {
		v[i].Add(1)
	}
}

// Series writes a counter for each version.
func (v *VersionCounts) Series(to metrics.Sink, d *prometheus.Desc) {
	for i := range versions {
		to.Counter(d, v[i].Load(), versions[i].name)
	}
}
