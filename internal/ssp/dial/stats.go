package dial

import (
	"errors"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/handshake"
)

// counters holds a dialer's counts since New.
type counters struct {
	addrsRefused atomic.Uint64 // addresses in DNS responses of a kind that is never dialled, such as link-local
	addrsBeyond  atomic.Uint64 // addresses in DNS responses beyond the number that is used for one name
	handshakes   handshake.Failures
}

// handshakeFailed counts an error of tlsError or negotiated.
func (c *counters) handshakeFailed(err error) {
	reason := handshake.ALPN
	if !errors.Is(err, exchange.ErrALPN) {
		reason = handshake.ReasonOf(errors.Unwrap(err))
	}
	c.handshakes.Add(reason)
}

// Descs describe the metrics of a Dialer.
var Descs metrics.Descs

var (
	descHandshakes = Descs.New("adbuffer_tls_handshake_errors_total", "TLS handshakes with an SSP that failed: "+handshake.ReasonsHelp, "ssp", "reason")
	descNoLookups  = Descs.New("adbuffer_dns_failing_names", "Names of an SSP's endpoints whose last look-up failed. Where an earlier one succeeded, its addresses stay in use.", "ssp")
	descAddrs      = Descs.New("adbuffer_dns_addresses_dropped_total", "Addresses in DNS responses that adbuffer does not use: kinds that are never dialled, such as link-local (forbidden), or more than it uses for one name (too_many).", "ssp", "reason")
	descCertEnd    = Descs.New("adbuffer_ssp_client_certificate_expiry_timestamp_seconds", "When the client certificate for an SSP (tls.cert_file) expires, in seconds since 1970.", "ssp")
)

// Collect writes the series of events that can happen with the SSP's settings.
func (d *Dialer) Collect(to metrics.Sink) {
	c := &d.stats
	if failed, names := d.resolver.failedLookups(time.Now()); names > 0 {
		to.Counter(descAddrs, c.addrsRefused.Load(), "forbidden")
		to.Counter(descAddrs, c.addrsBeyond.Load(), "too_many")
		to.Gauge(descNoLookups, float64(len(failed)))
	}
	if d.tls == nil {
		return
	}
	c.handshakes.Series(to, descHandshakes)
	if end := d.CertificateExpiry(); !end.IsZero() {
		to.Gauge(descCertEnd, float64(end.Unix()))
	}
}

// CertificateExpiry returns when adbuffer's client certificate expires. It returns zero if there is none.
func (d *Dialer) CertificateExpiry() time.Time {
	if d.tls == nil || d.tls.cert == nil {
		return time.Time{}
	}
	return d.tls.cert.keeper.Current().Certificate.Leaf.NotAfter
}
