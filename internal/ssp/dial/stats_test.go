package dial

import (
	"crypto/tls"
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
adbuffer_dns_lookups_total{result="failed",ssp="openx"} 3
adbuffer_dns_lookups_total{result="good",ssp="openx"} 7
adbuffer_http2_cipher_refused_total{ssp="openx"} 16
adbuffer_ssp_client_certificate_expiry_timestamp_seconds{ssp="openx"} EXPIRY
adbuffer_ssp_client_certificate_reloads_total{result="failed",ssp="openx"} 18
adbuffer_ssp_client_certificate_reloads_total{result="good",ssp="openx"} 17
adbuffer_tls_handshakes_total{kind="failed",ssp="openx"} 15
adbuffer_tls_handshakes_total{kind="full",ssp="openx"} 13
adbuffer_tls_handshakes_total{kind="resumed",ssp="openx"} 14
`},
	} {
		d := newDialer(t, row.o)
		c := &d.stats
		c.lookups.Store(10)
		c.lookupsFailed.Store(3)
		c.addrsRefused.Store(11)
		c.addrsBeyond.Store(12)
		for range 13 {
			c.handshakes.Succeeded(&tls.ConnectionState{})
		}
		for range 14 {
			c.handshakes.Succeeded(&tls.ConnectionState{DidResume: true})
		}
		for range 15 {
			c.handshakeFailed(exchange.ErrALPN)
		}
		c.http2Refused.Store(16)
		c.certsReloaded.Store(17)
		c.certsBroken.Store(18)
		want := row.want
		if want != "" {
			want = strings.Replace(want, "EXPIRY", fmt.Sprint(float64(d.tls.cert.keeper.Current().Certificate.Leaf.NotAfter.Unix())), 1)
		}
		counts := metrics.NewSource(Descs, func(to metrics.Sink) { d.Collect(to.With("openx")) })
		problems, err := testutil.CollectAndLint(counts)
		testsupport.True(t, err == nil && len(problems) == 0, "%v, %v", problems, err)
		text, err := testutil.CollectAndFormat(counts, expfmt.TypeTextPlain, "adbuffer_dns_addresses_dropped_total", "adbuffer_dns_failing_names", "adbuffer_dns_lookups_total",
			"adbuffer_http2_cipher_refused_total", "adbuffer_ssp_client_certificate_expiry_timestamp_seconds", "adbuffer_ssp_client_certificate_reloads_total",
			"adbuffer_tls_handshakes_total")
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
