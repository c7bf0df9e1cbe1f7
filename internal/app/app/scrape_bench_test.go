package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

// plain is a configuration of n SSPs with all defaults, over TLS at names or in cleartext at addresses.
func plain(n int, tls bool) string {
	var b strings.Builder
	b.WriteString("server: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nssps:\n")
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("ssp%d", i)
		url := fmt.Sprintf("http://127.0.0.1:%d/bid", 9000+i)
		if tls {
			url = fmt.Sprintf("https://ssp%d.example/bid", i)
		}
		fmt.Fprintf(&b, "  - {name: %s, endpoints: [%q]}\n", names[i], url)
	}
	fmt.Fprintf(&b, "routes: [{name: default, match: {path: /fillbuffer}, ssps: [%s], client_choice: true}]\n", strings.Join(names, ", "))
	return b.String()
}

// newOf returns an App of a configuration, which does not run.
func newOf(t testing.TB, text string) *App {
	t.Helper()
	cfg, _, err := config.Parse([]byte(text), nil)
	testsupport.NoError(t, err)
	a, err := New(cfg, zap.NewNop(), Process{})
	testsupport.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// discard is a client that discards its response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkScrapeOf50SSPs measures a scrape of /metrics with 50 SSPs, about 9,400 lines. CPU is that of the whole
// process.
func BenchmarkScrapeOf50SSPs(b *testing.B) {
	a := newOf(b, plain(50, false))
	for name, fields := range map[string][2]string{
		"text": {"text/plain;version=0.0.4", ""}, "text, gzip": {"text/plain;version=0.0.4", "gzip"},
		"OpenMetrics, gzip": {"application/openmetrics-text;version=1.0.0", "gzip"}, "protobuf, gzip": {protobuf, "gzip"},
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", fields[0])
			r.Header.Set("Accept-Encoding", fields[1])
			b.ReportAllocs()
			before := testsupport.CPUTime(b)
			for b.Loop() {
				a.metrics().ServeHTTP(discard{http.Header{}}, r) // each handler makes one text
			}
			b.ReportMetric(float64(testsupport.CPUTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}

const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
