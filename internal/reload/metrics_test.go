package reload

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"adbuffer/internal/dial"
	"adbuffer/internal/metrics"
)

func TestEveryCountOfADialerIsExported(t *testing.T) {
	stats := dial.Stats{
		Lookups: 10, LookupsFailed: 3, AddrsRefused: 11, AddrsBeyond: 12, HandshakesFull: 13, HandshakesResumed: 14,
		HandshakesFailed: 15, HTTP2Refused: 16, CertsReloaded: 17, CertsBroken: 18, SmallHellosGood: 19, SmallHellosFailed: 20,
	}
	counts := metrics.NewSource(descs, func(to metrics.Sink) { collectDials(to.With("openx"), stats) })
	problems, err := testutil.CollectAndLint(counts)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	text, err := testutil.CollectAndFormat(counts, expfmt.TypeTextPlain, "adbuffer_dns_addresses_dropped_total", "adbuffer_dns_lookups_total",
		"adbuffer_http2_cipher_refused_total", "adbuffer_ssp_client_certificate_reloads_total", "adbuffer_tls_handshakes_total", "adbuffer_tls_small_hello_retries_total")
	if err != nil {
		t.Fatal(err)
	}
	var samples []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	want := `adbuffer_dns_addresses_dropped_total{reason="forbidden",ssp="openx"} 11
adbuffer_dns_addresses_dropped_total{reason="too_many",ssp="openx"} 12
adbuffer_dns_lookups_total{result="failed",ssp="openx"} 3
adbuffer_dns_lookups_total{result="good",ssp="openx"} 7
adbuffer_http2_cipher_refused_total{ssp="openx"} 16
adbuffer_ssp_client_certificate_reloads_total{result="failed",ssp="openx"} 18
adbuffer_ssp_client_certificate_reloads_total{result="good",ssp="openx"} 17
adbuffer_tls_handshakes_total{kind="failed",ssp="openx"} 15
adbuffer_tls_handshakes_total{kind="full",ssp="openx"} 13
adbuffer_tls_handshakes_total{kind="resumed",ssp="openx"} 14
adbuffer_tls_small_hello_retries_total{result="failed",ssp="openx"} 20
adbuffer_tls_small_hello_retries_total{result="good",ssp="openx"} 19`
	if got := strings.Join(samples, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
