package dial

import (
	"errors"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/socket"
)

// counters holds a dialer's counts since New.
type counters struct {
	lookups, lookupsFailed     atomic.Uint64 // for one name each; a failed one brought no usable address
	addrsRefused               atomic.Uint64 // addresses in DNS responses of a kind that is never dialled, such as link-local
	addrsBeyond                atomic.Uint64 // addresses in DNS responses beyond the number that is used for one name
	handshakes                 handshake.Counts
	http2Refused               atomic.Uint64 // connections closed because HTTP/2 prohibits their cipher suite
	certsReloaded, certsBroken atomic.Uint64 // new versions of the client certificate, by whether they could be used
	traffic                    socket.Traffic
}

// handshakeFailed counts an error of tlsError or negotiated.
func (c *counters) handshakeFailed(err error) {
	reason := handshake.ALPN
	if !errors.Is(err, exchange.ErrALPN) {
		reason = handshake.ReasonOf(errors.Unwrap(err))
	}
	c.handshakes.Failed(reason)
}

// Descs describe the metrics of a Dialer.
var Descs metrics.Descs

var (
	descHandshakes = Descs.New("adbuffer_tls_handshakes_total", "TLS handshakes with an SSP, by whether they resumed an earlier session.", "ssp", "kind")
	descsOfTLS     = handshake.NewDescs(&Descs, "adbuffer_tls", "an SSP", "ssp")
	descLookups    = Descs.New("adbuffer_dns_lookups_total", "DNS look-ups of an SSP's names, by their result; while one fails, the last good response is used.", "ssp", "result")
	descNoLookups  = Descs.New("adbuffer_dns_failing_names", "Names of an SSP's endpoints whose last look-up failed. Where an earlier one succeeded, its addresses stay in use.", "ssp")
	descAddrs      = Descs.New("adbuffer_dns_addresses_dropped_total", "Addresses in DNS responses that adbuffer does not use: kinds that are never dialled, such as link-local (forbidden), or more than it uses for one name (too_many).", "ssp", "reason")
	descSent       = Descs.New("adbuffer_ssp_sent_bytes_total", "Bytes written to the sockets of connections to an SSP, TLS included.", "ssp")
	descReceived   = Descs.New("adbuffer_ssp_received_bytes_total", "Bytes read from the sockets of connections to an SSP, TLS included.", "ssp")
	descCipher     = Descs.New("adbuffer_http2_cipher_refused_total", "TLS connections closed because the SSP chose HTTP/2 with a cipher suite that HTTP/2 prohibits; adbuffer then dials with HTTP/1.1 only.", "ssp")
	descCertEnd    = Descs.New("adbuffer_ssp_client_certificate_expiry_timestamp_seconds", "When the client certificate for an SSP (tls.cert_file) expires, in seconds since 1970.", "ssp")
	descCerts      = Descs.New("adbuffer_ssp_client_certificate_reloads_total", "New versions of the client certificate for an SSP, by whether adbuffer could use them; otherwise the previous version stays in use.", "ssp", "result")
)

// Collect writes the series of what can happen with the SSP's settings.
func (d *Dialer) Collect(to metrics.Sink) {
	c := &d.stats
	to.Counter(descSent, c.traffic.Sent())
	to.Counter(descReceived, c.traffic.Received())
	if failed, names := d.resolver.failed(time.Now()); names > 0 {
		bad := c.lookupsFailed.Load()
		to.Counter(descLookups, c.lookups.Load()-bad, "good")
		to.Counter(descLookups, bad, "failed")
		to.Counter(descAddrs, c.addrsRefused.Load(), "forbidden")
		to.Counter(descAddrs, c.addrsBeyond.Load(), "too_many")
		to.Gauge(descNoLookups, float64(len(failed)))
	}
	if d.tls == nil {
		return
	}
	full, resumed, failed := c.handshakes.Totals()
	to.Counter(descHandshakes, full, "full")
	to.Counter(descHandshakes, resumed, "resumed")
	to.Counter(descHandshakes, failed, "failed")
	descsOfTLS.Series(to, &c.handshakes)
	to.Counter(descCipher, c.http2Refused.Load())
	if cert := d.tls.cert; cert != nil {
		to.Counter(descCerts, c.certsReloaded.Load(), "good")
		to.Counter(descCerts, c.certsBroken.Load(), "failed")
		to.Gauge(descCertEnd, float64(cert.keeper.Current().Certificate.Leaf.NotAfter.Unix()))
	}
}
