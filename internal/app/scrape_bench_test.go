package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/testsupport"
)

// newOf returns an App with n SSPs, which does not run.
func newOf(t testing.TB, n int) *App {
	t.Helper()
	var b strings.Builder
	b.WriteString("server: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nssps:\n")
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("ssp%d", i)
		fmt.Fprintf(&b, "  - {name: %s, endpoints: [\"http://127.0.0.1:%d/bid\"]}\n", names[i], 9000+i)
	}
	fmt.Fprintf(&b, "routes: [{name: default, match: {path: /fillbuffer}, ssps: [%s], client_choice: true}]\n", strings.Join(names, ", "))
	cfg, _, err := config.Parse([]byte(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// discard is a client that discards its response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkScrapeOf50SSPs measures a scrape of /metrics with 50 SSPs: about 21,000 lines. CPU is
// that of the whole process. Aim: below 5 ms of CPU in each format, gzip included.
func BenchmarkScrapeOf50SSPs(b *testing.B) {
	a := newOf(b, 50)
	h := a.metrics()
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
				h.ServeHTTP(discard{http.Header{}}, r)
			}
			b.ReportMetric(float64(testsupport.CPUTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}

const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

// BenchmarkPoolsOf50SSPs measures the request that the page sends once a second.
func BenchmarkPoolsOf50SSPs(b *testing.B) {
	a := newOf(b, 50)
	for b.Loop() {
		a.pools()
	}
}

// client_golang's own collectors make nearly all of the allocations: 2,400. The ceiling leaves room
// for them. Before, a scrape of 50 SSPs made 156,000.
func TestAScrapeAllocatesLittle(t *testing.T) {
	a := newOf(t, 50)
	h := a.metrics()
	for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0", protobuf} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Encoding", "gzip")
		if n := testing.AllocsPerRun(10, func() { h.ServeHTTP(discard{http.Header{}}, r) }); n > 5000 {
			t.Errorf("%s: %v allocations", accept, n)
		}
	}
}

// The handler's own text equals client_golang's: the same series with the same values.
func TestAScrapeIsWhatClientGolangMakesOfTheCollectors(t *testing.T) {
	a := newOf(t, 3)
	theirs := promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
		lines := func(h http.Handler) (all []string) {
			r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
			r.Header.Set("Accept", accept)
			h.ServeHTTP(w, r)
			for line := range strings.Lines(w.Body.String()) {
				if strings.Contains(line, "adbuffer_") {
					all = append(all, line)
				}
			}
			slices.Sort(all)
			return all
		}
		got, want := lines(a.metrics()), lines(theirs)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d lines, want %d", accept, len(got), len(want))
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("%swant\n%s", got[i], want[i])
				}
			}
		}
	}
}

func TestAScrapeHasEverySSP(t *testing.T) {
	a := newOf(t, 50)
	w := httptest.NewRecorder()
	a.metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if !strings.Contains(string(body), fmt.Sprintf(`adbuffer_pool_saturation_ratio{ssp="ssp%d"} 0`, i)) {
			t.Errorf("ssp%d is missing", i)
		}
	}
	if lines := strings.Count(string(body), "\n"); lines > 25000 {
		t.Errorf("50 SSPs make %d lines", lines)
	}
}

// BenchmarkReloadOf50SSPs measures a reload that changes nothing. It spends nearly all time on
// comparing both configurations setting by setting.
func BenchmarkReloadOf50SSPs(b *testing.B) {
	a := newOf(b, 50)
	cfg := a.versions.Current().Config
	for b.Loop() {
		if _, err := a.Reload(cfg); err != nil {
			b.Fatal(err)
		}
	}
}
