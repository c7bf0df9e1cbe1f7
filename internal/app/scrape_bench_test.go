package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"adbuffer/internal/config"
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

// discard is a client that reads and forgets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkScrapeOf50SSPs is what /metrics costs with 50 SSPs: collecting,
// sorting and writing some 17,000 lines. Aim: below 20 ms.
func BenchmarkScrapeOf50SSPs(b *testing.B) {
	a := newOf(b, 50)
	h := promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{})
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(discard{http.Header{}}, r)
	}
}

// BenchmarkPoolsOf50SSPs is what the page asks for once a second.
func BenchmarkPoolsOf50SSPs(b *testing.B) {
	a := newOf(b, 50)
	for b.Loop() {
		a.pools()
	}
}

func TestAScrapeHasEverySSP(t *testing.T) {
	a := newOf(t, 50)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
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

// BenchmarkReloadOf50SSPs is what a reload costs that changes nothing: reading
// both configurations setting by setting is nearly all of it.
func BenchmarkReloadOf50SSPs(b *testing.B) {
	a := newOf(b, 50)
	cfg := a.versions.Current().Config
	for b.Loop() {
		if _, err := a.Reload(cfg); err != nil {
			b.Fatal(err)
		}
	}
}
