package dial

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// An SSP whose endpoints are IP addresses has no look-ups that could fail, and one without tls.cert_file has
// no certificate that could end.
func TestCountsAreExportedWhereTheyCanChange(t *testing.T) {
	id := newIdentity(t, newAuthority(), "first")
	address, named := (&peer{port: 1}).options(t, "http", "127.0.0.1"), (&peer{port: 1}).options(t, "https", "ssp.test")
	named.TLS.CertFile, named.TLS.KeyFile = id.certFile, id.keyFile
	for _, row := range []struct {
		o    Options
		want string
	}{
		{address, ""},
		{named, `adbuffer_dns_addresses_dropped_total{reason="forbidden",ssp="openx"} 11
adbuffer_dns_addresses_dropped_total{reason="too_many",ssp="openx"} 12
adbuffer_dns_failing_names{ssp="openx"} 0
adbuffer_ssp_client_certificate_expiry_timestamp_seconds{ssp="openx"} EXPIRY
adbuffer_tls_handshake_errors_total{reason="alpn",ssp="openx"} 15
adbuffer_tls_handshake_errors_total{reason="certificate",ssp="openx"} 0
adbuffer_tls_handshake_errors_total{reason="closed",ssp="openx"} 0
adbuffer_tls_handshake_errors_total{reason="invalid",ssp="openx"} 0
adbuffer_tls_handshake_errors_total{reason="mismatch",ssp="openx"} 0
adbuffer_tls_handshake_errors_total{reason="refused",ssp="openx"} 0
adbuffer_tls_handshake_errors_total{reason="timeout",ssp="openx"} 0
adbuffer_tls_handshake_errors_total{reason="version",ssp="openx"} 0
`},
	} {
		d := newDialer(t, row.o)
		c := &d.stats
		c.addrsRefused.Store(11)
		c.addrsBeyond.Store(12)
		for range 15 {
			c.handshakeFailed(exchange.ErrALPN)
		}
		want := row.want
		if want != "" {
			want = strings.Replace(want, "EXPIRY", fmt.Sprint(float64(d.tls.cert.keeper.Current().Certificate.Leaf.NotAfter.Unix())), 1)
		}
		counts := metrics.NewSource(Descs, func(to metrics.Sink) { d.Collect(to.With("openx")) })
		problems, err := testutil.CollectAndLint(counts)
		testsupport.True(t, err == nil && len(problems) == 0, "%v, %v", problems, err)
		text, err := testutil.CollectAndFormat(counts, expfmt.TypeTextPlain, "adbuffer_dns_addresses_dropped_total", "adbuffer_dns_failing_names",
			"adbuffer_ssp_client_certificate_expiry_timestamp_seconds", "adbuffer_tls_handshake_errors_total")
		testsupport.NoError(t, err)
		var got strings.Builder
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
		}
		testsupport.True(t, got.String() == want, "got\n%s\nwant\n%s", &got, want)
	}
}
