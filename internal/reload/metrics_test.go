package reload

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/dial"
	"adbuffer/internal/metrics"
	"adbuffer/internal/testsupport"
)

func TestEveryCountOfADialerIsExported(t *testing.T) {
	stats := dial.Stats{
		Lookups: 10, LookupsFailed: 3, AddrsRefused: 11, AddrsBeyond: 12, HandshakesFull: 13, HandshakesResumed: 14,
		HandshakesFailed: 15, HTTP2Refused: 16, CertsReloaded: 17, CertsBroken: 18, SmallHellosGood: 19, SmallHellosFailed: 20,
	}
	counts := metrics.NewSource(descs, func(to metrics.Sink) {
		collectDials(to.With("openx"), stats, possible{names: true, tls: true, certificate: true})
	})
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

// An SSP whose endpoints are IP addresses has no look-ups that could fail, and one without tls.cert_file has
// no certificate that could end.
func TestNamesAndCertificatesAreExportedWhereTheyExist(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "c.key")
	own := testsupport.Certificate()
	testsupport.WriteCertificate(t, own, cert, key)
	for _, row := range []struct{ ssp, names, expiry string }{
		{`endpoints: ["http://127.0.0.1:9/"]`, "", ""},
		{fmt.Sprintf(`endpoints: ["https://ssp.example/", "https://ssp.example:8443/", "https://127.0.0.1:9/"], tls: {cert_file: %q, key_file: %q}`, cert, key),
			`adbuffer_dns_failing_names{ssp="a"} 0`, fmt.Sprintf(`adbuffer_ssp_client_certificate_expiry_timestamp_seconds{ssp="a"} %v`, float64(own.Leaf.NotAfter.Unix()))},
	} {
		cfg, _, err := config.Parse([]byte("ssps: [{name: a, "+row.ssp+"}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := newDialer(&cfg.SSPs[0], &Options{Peers: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer d.dial.Close()
		source := metrics.NewSource(descs, func(to metrics.Sink) { d.collect(to.With("a")) })
		for name, want := range map[string]string{"adbuffer_dns_failing_names": row.names, "adbuffer_ssp_client_certificate_expiry_timestamp_seconds": row.expiry} {
			text, err := testutil.CollectAndFormat(source, expfmt.TypeTextPlain, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, got, _ := strings.Cut(string(text), "gauge\n"); strings.TrimSpace(got) != want {
				t.Errorf("%s: %q, want %q", row.ssp, got, want)
			}
		}
	}
}
