package metrics

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
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
type testSource struct {
	wait  *Histogram
	sizes prometheus.Histogram
}

func newSource() prometheus.Collector {
	s := &testSource{Durations(time.Millisecond, 35*time.Millisecond, time.Second), prometheus.NewHistogram(prometheus.HistogramOpts{Buckets: []float64{0, 1 << 10, 1 << 20}})}
	for _, d := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 123456789 * time.Nanosecond, time.Hour} {
		s.wait.ObserveDuration(d)
		s.sizes.Observe(float64(d))
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

func newRegistry(t *testing.T) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	testsupport.NoError(t, r.Register(newSource()))
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

// newPage returns the page of r, whose turns come at once.
func newPage(t *testing.T, r prometheus.Gatherer) http.Handler {
	return NewPage(r, PageOptions{Errors: log.New(testWriter{t}, "", 0), Acquire: func() (Turn, error) { return freeTurn{}, nil }})
}

// freeTurn is a turn without a bound.
type freeTurn struct{}

func (freeTurn) Pause()   { time.Sleep(time.Microsecond) }
func (freeTurn) Release() {}

// testWriter fails the test for each line that is logged.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Errorf("logged: %s", b); return len(b), nil }

const (
	text        = "text/plain;version=0.0.4"
	openMetrics = "application/openmetrics-text;version=1.0.0"
	protobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// A scrape gets what promhttp would send without the page between, in each form.
func TestThePageIsThatOfPromhttp(t *testing.T) {
	r := newRegistry(t)
	h, theirs := newPage(t, r), promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true})
	for _, accept := range []string{text, openMetrics, protobuf, "*/*", "a/b", ""} {
		for _, coding := range []string{"", "gzip"} {
			got, want := get(h, "Accept", accept, "Accept-Encoding", coding), get(theirs, "Accept", accept, "Accept-Encoding", coding)
			testsupport.True(t, bytes.Equal(got.Body.Bytes(), want.Body.Bytes()), "%q %q:\n%s\nwant\n%s", accept, coding, got.Body, want.Body)
			testsupport.Equal(t, got.Header().Get("Content-Length"), strconv.Itoa(want.Body.Len()), "%[2]q: Content-Length %[1]s", accept)
			got.Header().Del("Content-Length")
			testsupport.True(t, maps.EqualFunc(got.Header(), want.Header(), slices.Equal), "%q %q: header %v, want %v", accept, coding, got.Header(), want.Header())
		}
	}
}

func TestExemplarsAreForOpenMetricsAlone(t *testing.T) {
	r := newRegistry(t)
	const exemplar = ` # {trace_id="ab000000000000000000000000000001"} 0.002 1.7000000005e+09`
	if b := get(newPage(t, r), "Accept", openMetrics).Body.String(); !strings.Contains(b, `le="0.035"} 4`+exemplar+"\n") || strings.Count(b, "trace_id") != 6 {
		t.Errorf("want two exemplars for each of three SSPs:\n%s", b)
	}
	b := get(newPage(t, r), "Accept", text).Body.String()
	testsupport.True(t, !strings.Contains(b, "trace_id"), "exemplars in the text format:\n%s", b)
}

func TestGzipOnlyWhereItIsAccepted(t *testing.T) {
	r := newRegistry(t)
	plain := get(newPage(t, r)).Body.String()
	for accept, want := range map[string]bool{"gzip": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;Q=0": false, "br": false, "": false} {
		w := get(newPage(t, r), "Accept-Encoding", accept)
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
		r := prometheus.NewRegistry()
		gathered := 0
		var all Descs
		d := all.New("test_gathered", "Gathered.")
		testsupport.NoError(t, r.Register(NewSource(all, func(to Sink) {
			gathered++
			to.Gauge(d, float64(gathered))
		})))
		turns := 0
		h := NewPage(r, PageOptions{Acquire: func() (Turn, error) { turns++; return freeTurn{}, nil }})
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
		p := h.(*page)
		p.mu.Lock()
		defer p.mu.Unlock()
		testsupport.True(t, p.current == nil, "a snapshot is held for longer than a second")
	})
}

func TestMetricsThatCannotBeGatheredAreAnErrorOnlyIfThereAreNoOthers(t *testing.T) {
	var families []*dto.MetricFamily
	g := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, errors.New("it broke") })
	h := NewPage(g, PageOptions{Errors: log.New(io.Discard, "", 0), Acquire: func() (Turn, error) { return freeTurn{}, nil }})
	w := get(h)
	testsupport.True(t, w.Code == 500 && strings.Contains(w.Body.String(), "it broke"), "without any metric: %d %s", w.Code, w.Body)
	families, _ = newRegistry(t).Gather()
	testsupport.Equal(t, get(h).Code, 200, "status %d with other metrics")
	late := NewPage(g, PageOptions{Acquire: func() (Turn, error) { return nil, os.ErrDeadlineExceeded }})
	testsupport.Equal(t, get(late).Code, 503, "status %d without a turn")
}

// The encoding of a long page lets requests run.
func TestALongPagePauses(t *testing.T) {
	var all Descs
	d := all.New("test_many", "Many.", "n")
	r := prometheus.NewRegistry()
	testsupport.NoError(t, r.Register(NewSource(all, func(to Sink) {
		for i := range 20_000 {
			to.Gauge(d, 1, strconv.Itoa(i))
		}
	})))
	turn := &countingTurn{}
	get(NewPage(r, PageOptions{Acquire: func() (Turn, error) { return turn, nil }}), "Accept", text)
	testsupport.True(t, turn.pauses >= 1 && turn.releases == 1, "%d pauses, %d releases", turn.pauses, turn.releases)
}

type countingTurn struct{ pauses, releases int }

func (c *countingTurn) Pause()   { c.pauses++ }
func (c *countingTurn) Release() { c.releases++ }

func TestASourceKeepsToItsLabels(t *testing.T) {
	defer func() {
		testsupport.True(t, recover() != nil, "a series with too few labels was written")
	}()
	Sink{ch: make(chan prometheus.Metric, 1)}.Counter(descBytes, 1, "openx")
}
