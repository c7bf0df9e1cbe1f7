package reload

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/dial"
	"adbuffer/internal/handshake"
	"adbuffer/internal/metrics"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

const ms = time.Millisecond

// newHeadWait has buckets from negligible waits up to a usual deadline.
func newHeadWait() *metrics.Histogram {
	return metrics.Durations(ms/10, 5*ms, 50*ms, 500*ms)
}

var (
	descs          metrics.Descs
	descConfig     = descs.New("adbuffer_config_info", "1, with a hash of the effective configuration.", "hash")
	descGood       = descs.New("adbuffer_config_last_reload_successful", "1 if the configuration was valid when it was last read, 0 if it was not.")
	descLoaded     = descs.New("adbuffer_config_last_reload_success_timestamp_seconds", "When the configuration in force was read, in seconds since 1970.")
	descDraining   = descs.New("adbuffer_pools_draining", "Pools that a reload replaced or removed, and that still have requests.")
	descHeadWait   = descs.New("adbuffer_pipeline_head_wait_seconds", "How long a pipelined response waited for the responses before it, in seconds.", "ssp")
	descHandshakes = descs.New("adbuffer_tls_handshakes_total", "TLS handshakes with an SSP, by whether they resumed an earlier session.", "ssp", "kind")
	descsOfTLS     = handshake.NewDescs(&descs, "adbuffer_tls", "an SSP", "ssp")
	descHellos     = descs.New("adbuffer_tls_small_hello_retries_total", "TLS handshakes with an SSP that were tried once more without groups with MLKEM, since the connection was reset or silent after the first ClientHello, by whether the handshake then succeeded (good) or not (failed).", "ssp", "result")
	descLookups    = descs.New("adbuffer_dns_lookups_total", "DNS look-ups of an SSP's names, by their result; while one fails, the last good response is used.", "ssp", "result")
	descNoLookups  = descs.New("adbuffer_dns_failing_names", "Names of an SSP's endpoints whose last look-up failed. Where an earlier one succeeded, its addresses stay in use.", "ssp")
	descAddrs      = descs.New("adbuffer_dns_addresses_dropped_total", "Addresses in DNS responses that adbuffer does not use: kinds that are never dialled, such as link-local (forbidden), or more than it uses for one name (too_many).", "ssp", "reason")
	descSent       = descs.New("adbuffer_ssp_sent_bytes_total", "Bytes written to the sockets of connections to an SSP, TLS included.", "ssp")
	descReceived   = descs.New("adbuffer_ssp_received_bytes_total", "Bytes read from the sockets of connections to an SSP, TLS included.", "ssp")
	descCipher     = descs.New("adbuffer_http2_cipher_refused_total", "TLS connections closed because the SSP chose HTTP/2 with a cipher suite that HTTP/2 prohibits; adbuffer then dials with HTTP/1.1 only.", "ssp")
	descCertEnd    = descs.New("adbuffer_ssp_client_certificate_expiry_timestamp_seconds", "When the client certificate for an SSP (tls.cert_file) expires, in seconds since 1970.", "ssp")
	descCerts      = descs.New("adbuffer_ssp_client_certificate_reloads_total", "New versions of the client certificate for an SSP, by whether adbuffer could use them; otherwise the previous version stays in use.", "ssp", "result")
)

// Metrics returns a collector of v's metrics. Counters of connections begin at 0 with each new pool,
// and counters of spans with each new tracer.
func (v *Versions) Metrics() prometheus.Collector {
	return metrics.NewSource(slices.Concat(descs, tracing.Descs), v.collect)
}

func (v *Versions) collect(to metrics.Sink) {
	current := v.Current()
	to.Gauge(descConfig, 1, current.Hash)
	to.Bool(descGood, v.failed.Load() == nil)
	to.Gauge(descLoaded, float64(current.Loaded.Unix()))
	to.Gauge(descDraining, float64(v.leftovers.Load()))
	for _, p := range current.Parts {
		p.dialer.collect(to.With(p.dialer.ssp))
	}
	if current.Tracer != nil {
		current.Tracer.Collect(to)
	}
}

func (d *dialer) collect(to metrics.Sink) {
	to.HistogramIf(d.dial.Protocol() == upstream.HTTP1Pipelined, descHeadWait, d.headWait)
	failed, names := d.dial.FailedLookups()
	end := d.dial.ClientCertExpiry()
	collectDials(to, d.dial.Stats(), possible{names: names > 0, tls: d.dial.Encrypted(), certificate: !end.IsZero()})
	if names > 0 {
		to.Gauge(descNoLookups, float64(len(failed)))
	}
	if !end.IsZero() {
		to.Gauge(descCertEnd, float64(end.Unix()))
	}
}

// possible says what can happen on a dial with the SSP's settings.
type possible struct {
	names       bool // names of endpoints are looked up
	tls         bool
	certificate bool // there is a client certificate
}

// collectDials sends the counts of an SSP's dialer.
func collectDials(to metrics.Sink, s dial.Stats, may possible) {
	to.Counter(descSent, s.BytesSent)
	to.Counter(descReceived, s.BytesReceived)
	if may.tls { // a dialer's TLS never changes
		to.Counter(descHandshakes, s.HandshakesFull, "full")
		to.Counter(descHandshakes, s.HandshakesResumed, "resumed")
		to.Counter(descHandshakes, s.HandshakesFailed, "failed")
		to.Counter(descHellos, s.SmallHellosGood, "good")
		to.Counter(descHellos, s.SmallHellosFailed, "failed")
		descsOfTLS.Series(to, s.Handshakes)
		to.Counter(descCipher, s.HTTP2Refused)
	}
	to.CounterIf(may.names, descLookups, s.Lookups-min(s.LookupsFailed, s.Lookups), "good")
	to.CounterIf(may.names, descLookups, s.LookupsFailed, "failed")
	to.CounterIf(may.names, descAddrs, s.AddrsRefused, "forbidden")
	to.CounterIf(may.names, descAddrs, s.AddrsBeyond, "too_many")
	to.CounterIf(may.certificate, descCerts, s.CertsReloaded, "good")
	to.CounterIf(may.certificate, descCerts, s.CertsBroken, "failed")
}
