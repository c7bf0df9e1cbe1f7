package metrics

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/testsupport"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

var (
	testDescs Descs
	descBytes = testDescs.New("test_bytes_total", "Bytes, \"quoted\", with a \\ and\na second line.", "ssp", "kind")
	descLoad  = testDescs.New("test_load_ratio", "Load.", "ssp")
	descWait  = testDescs.New("test_wait_seconds", "Time.", "ssp")
	descSizes = testDescs.New("test_size_bytes", "Sizes.")
	descNow   = testDescs.New("test_now", "Now.")
	_         = testDescs.New("test_unused", "No series.", "ssp")
)

// testSource has series for every special case of a text format.
type testSource struct{ wait, sizes *Histogram }

func newSource() prometheus.Collector {
	s := &testSource{Durations(time.Millisecond, 35*time.Millisecond, time.Second), NewHistogram(1, 0, 1<<10, 1<<20)}
	for _, d := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 123456789 * time.Nanosecond, time.Hour} {
		s.wait.ObserveDuration(d)
		s.sizes.Observe(int64(d))
	}
	s.wait.ObserveTraced(2*time.Millisecond, [16]byte{0xab, 15: 1}, time.Unix(1_700_000_000, 5e8))
	s.wait.ObserveTraced(time.Minute, [16]byte{0xcd, 15: 2}, time.Unix(1_700_000_001, 0))
	return NewSource(testDescs, s.series)
}

func (s *testSource) series(to Sink) {
	to.Gauge(descNow, 1.7e9)
	for i, ssp := range []string{"openx", `a"b\c` + "\nd", ""} {
		to := to.With(ssp)
		for k, n := range []uint64{0, 1, 10, 999999, 1000000, 123456789, math.MaxUint64} {
			to.Counter(descBytes, n+uint64(i), string(rune('a'+k)))
		}
		to.Gauge(descLoad, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i])
		to.Histogram(descWait, s.wait)
	}
	for i, v := range []float64{0, -1, 0.1, 1e-9, 1e21, 1.5, 999999.5, -2e6} {
		to.Gauge(descLoad, v, string(rune('A'+i)))
	}
	to.Histogram(descSizes, s.sizes)
}

func newRegistry(t *testing.T) *Registry {
	t.Helper()
	r := NewRegistry()
	few := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_few_total", Help: "Few."})
	few.Add(7)
	for _, c := range []prometheus.Collector{newSource(), few} {
		testsupport.NoError(t, r.Register(c))
	}
	return r
}

func get(h http.Handler, fields ...string) *httptest.ResponseRecorder {
	q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	for i := 0; i < len(fields); i += 2 {
		q.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w
}

func (r *Registry) handler(t *testing.T) http.Handler {
	return r.Handler(PageOptions{During: func(f func()) { f() }, Errors: log.New(testWriter{t}, "", 0)})
}

// testWriter fails the test for each line that is logged.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Errorf("logged: %s", b); return len(b), nil }

const (
	text        = "text/plain;version=0.0.4"
	openMetrics = "application/openmetrics-text;version=1.0.0"
	protobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// The expected output is that of client_golang's own registry.
func TestTextEqualsClientGolang(t *testing.T) {
	r := newRegistry(t)
	theirs := promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for range 2 { // the second scrape reuses memory
		for _, accept := range []string{text, openMetrics, ""} {
			ours, want := get(r.handler(t), "Accept", accept), get(theirs, "Accept", accept)
			if got, want := ours.Header().Get("Content-Type"), want.Header().Get("Content-Type"); got != want {
				t.Errorf("%q: Content-Type %q, want %q", accept, got, want)
			}
			g, w := families(ours.Body.String()), families(want.Body.String())
			for name, lines := range w {
				if !slices.Equal(g[name], lines) {
					t.Errorf("%q: %s is\n%s\nwant\n%s", accept, name, strings.Join(g[name], "\n"), strings.Join(lines, "\n"))
				}
			}
			testsupport.Equal(t, len(g), len(w), "%[2]q: %[1]d metrics", accept)
			end := strings.HasSuffix(ours.Body.String(), "\n# EOF\n")
			testsupport.True(t, end == (accept == openMetrics), "%q: ends with # EOF: %v", accept, end)
		}
	}
}

// families returns the sorted lines of each metric. A metric whose lines are not together counts as
// two.
func families(body string) map[string][]string {
	all := make(map[string][]string)
	name := ""
	for line := range strings.Lines(strings.TrimSuffix(body, "# EOF\n")) {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, _, _ = strings.Cut(rest, " ")
			for all[name] != nil {
				name += " again"
			}
		}
		all[name] = append(all[name], strings.TrimSpace(line))
	}
	for _, lines := range all {
		slices.Sort(lines)
	}
	return all
}

func TestExemplarsAreForOpenMetricsAlone(t *testing.T) {
	r := newRegistry(t)
	const exemplar = ` # {trace_id="ab000000000000000000000000000001"} 0.002 1.7000000005e+09`
	if b := get(r.handler(t), "Accept", openMetrics).Body.String(); !strings.Contains(b, `le="0.035"} 4`+exemplar+"\n") || strings.Count(b, "trace_id") != 6 {
		t.Errorf("want two exemplars for each of three SSPs:\n%s", b)
	}
	b := get(r.handler(t), "Accept", text).Body.String()
	testsupport.True(t, !strings.Contains(b, "trace_id"), "exemplars in the text format:\n%s", b)
}

func TestGzipOnlyWhereItIsAccepted(t *testing.T) {
	r := newRegistry(t)
	plain := get(r.handler(t)).Body.String()
	for accept, want := range map[string]bool{"gzip": true, "deflate, GZIP;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;Q=0": false, "br": false, "": false} {
		w := get(r.handler(t), "Accept-Encoding", accept)
		testsupport.Equal(t, w.Header().Get("Content-Encoding") == "gzip", want, "%[2]q: gzip %[1]v", accept)
		var body io.Reader = w.Body
		if want {
			z, err := gzip.NewReader(w.Body)
			testsupport.NoError(t, err)
			body = z
		}
		b, err := io.ReadAll(body)
		testsupport.True(t, err == nil && string(b) == plain, "%q: %v, %d bytes, want %d", accept, err, len(b), len(plain))
	}
}

// A hundred scrapes a second, in all forms, make one snapshot a second, and four at once at first. A
// scrape after a pause sees new values.
func TestAFloodOfScrapesMakesOneTextASecond(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		r := NewRegistry()
		gathered := 0
		var all Descs
		d := all.New("test_gathered", "Gathered.")
		testsupport.NoError(t, r.Register(NewSource(all, func(to Sink) {
			gathered++
			to.Gauge(d, float64(gathered))
		})))
		turns := 0
		h := r.Handler(PageOptions{During: func(f func()) { f() }, Acquire: func() (Turn, error) { turns++; return freeTurn{}, nil }})
		accepts := []string{text, openMetrics, protobuf, "application/openmetrics-text;version=1.0.0;escaping=values", "text/plain;version=0.0.4;escaping=dots", "a/b"}
		for i := range 1000 {
			w := get(h, "Accept", accepts[i%len(accepts)], "Accept-Encoding", []string{"gzip", ""}[i/len(accepts)%2])
			testsupport.Equal(t, w.Code, 200, "status %d")
			time.Sleep(10 * time.Millisecond)
		}
		testsupport.Between(t, gathered, 12, 14, "%d snapshots for 1,000 scrapes in 10 s")
		get(h, "Cache-Control", "no-cache")
		get(h, "Cache-Control", "No-Cache")
		testsupport.Between(t, gathered, 14, 16, "%d snapshots after two more without a cache")
		testsupport.AtMost(t, turns, 14*6+2, "%d turns for 14 snapshots in 6 forms, want at most %d")
		time.Sleep(time.Hour)
		want := fmt.Sprintf("test_gathered %d\n", gathered+1)
		got := get(h).Body.String()
		testsupport.True(t, strings.HasSuffix(got, want), "after a pause a scrape is %q, want %q at its end", got, want)
		time.Sleep(time.Minute) // the page forgets its snapshot
		testsupport.True(t, h.(*page).current == nil, "a snapshot is held for longer than a second")
	})
}

// The order of each metric's series differs from client_golang's; the messages are the same.
func TestProtobufEqualsClientGolang(t *testing.T) {
	r := newRegistry(t)
	decode := func(w *httptest.ResponseRecorder) map[string]*dto.MetricFamily {
		format := expfmt.ResponseFormat(w.Header())
		testsupport.MustTrue(t, format.FormatType() == expfmt.TypeProtoDelim, "the format is %q", format)
		all := make(map[string]*dto.MetricFamily)
		for d := expfmt.NewDecoder(w.Body, format); ; {
			f := new(dto.MetricFamily)
			if err := d.Decode(f); errors.Is(err, io.EOF) {
				return all
			} else if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(f.Metric, func(a, b *dto.Metric) int { return cmp.Compare(fmt.Sprint(a.Label), fmt.Sprint(b.Label)) })
			all[f.GetName()] = f
		}
	}
	got := decode(get(r.handler(t), "Accept", protobuf))
	want := decode(get(promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{}), "Accept", protobuf))
	for name, f := range want {
		if !proto.Equal(got[name], f) {
			t.Errorf("%s is\n%s\nwant\n%s", name, prototext.Format(got[name]), prototext.Format(f))
		}
	}
	testsupport.True(t, len(got) == len(want) && len(want) >= 6, "%d metrics, want %d", len(got), len(want))
	h := want["test_wait_seconds"].Metric[0].Histogram
	testsupport.True(t, len(h.PositiveSpan) != 0 && h.Bucket[1].Exemplar != nil, "there is nothing to compare in %v", h)
}

func TestASourceKeepsToItsLabels(t *testing.T) {
	defer func() {
		testsupport.True(t, recover() != nil, "a series with too few labels was written")
	}()
	Sink{}.Counter(descBytes, 1, "openx")
}
