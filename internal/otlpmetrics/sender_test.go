package otlpmetrics

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"adbuffer/internal/metrics"
	"adbuffer/internal/testsupport"
)

// receiver is an OTLP receiver. It keeps the last export.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	exports  int
	path     string
	metrics  []*otlp.Metric
	resource map[string]string
}

func startReceiver(t *testing.T) *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var m collector.ExportMetricsServiceRequest
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil || len(m.ResourceMetrics) != 1 || len(m.ResourceMetrics[0].ScopeMetrics) != 1 {
			t.Errorf("%v: %v", err, &m)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exports++
		r.path, r.metrics, r.resource = q.URL.Path, m.ResourceMetrics[0].ScopeMetrics[0].Metrics, labels(m.ResourceMetrics[0].Resource.Attributes)
	}))
	t.Cleanup(r.Close)
	return r
}

func labels(all []*common.KeyValue) map[string]string {
	found := make(map[string]string)
	for _, a := range all {
		found[a.Key] = a.Value.GetStringValue()
	}
	return found
}

var (
	testDescs  metrics.Descs
	descCount  = testDescs.New("test_requests_total", "Requests.", "outcome")
	descGauge  = testDescs.New("test_open", "Open connections.")
	descLength = testDescs.New("test_duration_seconds", "Durations.", "ssp")
)

// registry returns a registry with a metric of each kind, and the Go runtime's.
func registry(t *testing.T) *metrics.Registry {
	r := metrics.NewRegistry()
	h := metrics.Durations(time.Millisecond, 10*time.Millisecond, time.Second)
	h.ObserveDuration(3 * time.Millisecond)
	h.ObserveDuration(time.Minute)
	h.ObserveTraced(4*time.Millisecond, trace.TraceID{1, 2, 3}, time.Unix(1, 0))
	err := errors.Join(r.Register(collectors.NewGoCollector()), r.Register(metrics.NewSource(testDescs, func(to metrics.Sink) {
		to.Counter(descCount, 7, "fill")
		to.Counter(descCount, 2, "no_bid")
		to.Gauge(descGauge, 1.5)
		to.Histogram(descLength, h, "openx")
	})))
	testsupport.NoError(t, err)
	return r
}

// warnings are what a Sender warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) add(message string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, message+": "+err.Error())
}

// results returns the Sender's counts.
func results(t *testing.T, s *Sender) map[string]float64 {
	r := metrics.NewRegistry()
	testsupport.NoError(t, r.Register(metrics.NewSource(Descs, s.Collect)))
	families, err := r.Gather()
	testsupport.NoError(t, err)
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			if n := m.Counter.GetValue(); n > 0 {
				found[m.Label[0].GetValue()] = n
			}
		}
	}
	return found
}

// shape has what of a metric a backend stores: for each series its value, and for a histogram its
// count and buckets.
type shape map[string]any

func shapeOfFamily(f *dto.MetricFamily) shape {
	s := make(shape)
	for _, m := range f.Metric {
		var key []string
		for _, l := range m.Label {
			key = append(key, l.GetName()+"="+l.GetValue())
		}
		switch k := strings.Join(key, ","); f.GetType() {
		case dto.MetricType_COUNTER:
			s[k] = m.Counter.GetValue()
		case dto.MetricType_GAUGE:
			s[k] = m.Gauge.GetValue()
		case dto.MetricType_HISTOGRAM:
			buckets := make(map[float64]uint64)
			for _, b := range m.Histogram.Bucket {
				buckets[b.GetUpperBound()] = b.GetCumulativeCount()
			}
			s[k] = []any{m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum(), buckets}
		case dto.MetricType_SUMMARY:
			s[k] = m.Summary.GetSampleCount()
		}
	}
	return s
}

func shapeOfMetric(m *otlp.Metric) shape {
	s := make(shape)
	key := func(all []*common.KeyValue) string {
		var k []string
		for name, value := range labels(all) {
			k = append(k, name+"="+value)
		}
		slices.Sort(k)
		return strings.Join(k, ",")
	}
	for _, p := range m.GetSum().GetDataPoints() {
		s[key(p.Attributes)] = p.GetAsDouble()
	}
	for _, p := range m.GetGauge().GetDataPoints() {
		s[key(p.Attributes)] = p.GetAsDouble()
	}
	for _, p := range m.GetSummary().GetDataPoints() {
		s[key(p.Attributes)] = p.Count
	}
	for _, p := range m.GetHistogram().GetDataPoints() {
		buckets, sum := make(map[float64]uint64), uint64(0)
		for i, bound := range p.ExplicitBounds {
			sum += p.BucketCounts[i]
			buckets[bound] = sum
		}
		s[key(p.Attributes)] = []any{p.Count, p.GetSum(), buckets}
	}
	return s
}

func TestAnExportHasTheSeriesOfTheRegistry(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=canary")
	r, reg, w := startReceiver(t), registry(t), new(warnings)
	var gathered []*dto.MetricFamily
	s := New(Options{Version: "1.2.3", Instance: "adbuffer-7", Warn: w.add, Gather: func() (families []*dto.MetricFamily, err error) {
		families, err = reg.Gather()
		gathered = families
		return families, err
	}})
	testsupport.NoError(t, s.Apply(Receiver{Endpoint: r.URL, Interval: time.Hour}))
	s.Close(t.Context())
	testsupport.Equal(t, r.path, "/v1/metrics", "sent to %s")
	for name, want := range map[string]string{"service.name": "adbuffer", "service.version": "1.2.3", "service.instance.id": "adbuffer-7", "deployment.environment": "canary"} {
		testsupport.Equal(t, r.resource[name], want, "the resource has %[2]s=%[1]q", name)
	}
	testsupport.True(t, len(r.metrics) == len(gathered) && len(gathered) >= 20, "%d metrics arrived, of %d", len(r.metrics), len(gathered))
	for i, m := range r.metrics {
		f := gathered[i]
		if m.Name != f.GetName() || m.Description != f.GetHelp() {
			t.Errorf("%s arrived as %s (%s)", f.GetName(), m.Name, m.Description)
		}
		if diff := cmp.Diff(shapeOfFamily(f), shapeOfMetric(m)); diff != "" {
			t.Errorf("%s: %s", m.Name, diff)
		}
	}
	if got := results(t, s); !maps.Equal(got, map[string]float64{"sent": 1}) || len(w.all) > 0 {
		t.Errorf("counted %v, warned %v", got, w.all)
	}
}

// A collector refuses an export with a trace id that is not 16 bytes long.
func TestExemplarsHaveTheTraceIDs(t *testing.T) {
	r := startReceiver(t)
	s := New(Options{Gather: registry(t).Gather, Warn: new(warnings).add})
	testsupport.NoError(t, s.Apply(Receiver{Endpoint: r.URL, Interval: time.Hour}))
	s.Close(t.Context())
	at := slices.IndexFunc(r.metrics, func(m *otlp.Metric) bool { return m.Name == "test_duration_seconds" })
	found := r.metrics[at].GetHistogram().DataPoints[0].Exemplars
	if want := (trace.TraceID{1, 2, 3}); len(found) != 1 || string(found[0].TraceId) != string(want[:]) {
		t.Errorf("exemplars %v, want one of trace %v", found, want)
	}
}

// Failures are counted each time, and warned of once.
func TestExportsThatFailAreCounted(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such tenant", http.StatusBadRequest) }))
	t.Cleanup(refusing.Close)
	broken := func(reg *metrics.Registry, fail func() error) func() ([]*dto.MetricFamily, error) {
		return func() ([]*dto.MetricFamily, error) {
			families, err := reg.Gather()
			return families, errors.Join(err, fail())
		}
	}
	for _, test := range []struct {
		name     string
		endpoint string // "" = a receiver that works
		fail     func() error
		want     string // of the results
		warning  string
	}{
		{"the receiver refuses", refusing.URL, func() error { return nil }, "failed", "metrics could not be sent; see metrics.otlp.endpoint: failed to upload metrics: failed to send metrics to " + refusing.URL + "/v1/metrics: 400 Bad Request (body: no such tenant)"},
		{"nothing listens", "http://" + testsupport.FreeAddr(t), func() error { return nil }, "failed", "metrics could not be sent; see metrics.otlp.endpoint: "},
		{"a collector fails", "", func() error { return errors.New("no such file") }, "incomplete", "exported metrics lack the series of a collector that failed: no such file"},
		{"a collector panics", "", func() error { panic("index out of range") }, "failed", "exported metrics lack the series of a collector that failed: panic: index out of range"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, r := new(warnings), startReceiver(t)
			if test.endpoint == "" {
				test.endpoint = r.URL
			}
			s := New(Options{Gather: broken(registry(t), test.fail), Warn: w.add})
			for i := range 3 { // each change of the settings exports once more
				testsupport.NoError(t, s.Apply(Receiver{Endpoint: test.endpoint, Interval: time.Hour + time.Duration(i)}))
			}
			s.Close(t.Context())
			if got := results(t, s); !maps.Equal(got, map[string]float64{test.want: 3}) {
				t.Errorf("counted %v, want 3 %s", got, test.want)
			}
			testsupport.True(t, len(w.all) == 1 && strings.Contains(w.all[0], test.warning), "warned %q, want once %q", w.all, test.warning)
		})
	}
}

// A receiver that never responds delays neither Apply nor, for longer than its context, Close.
func TestAReceiverThatHangsBlocksNothing(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	t.Cleanup(func() { hanging.Close() })
	w, r := new(warnings), startReceiver(t)
	s := New(Options{Gather: registry(t).Gather, Warn: w.add})
	for _, endpoint := range []string{"http://" + hanging.Addr().String(), r.URL} {
		testsupport.NoError(t, s.Apply(Receiver{Endpoint: endpoint, Interval: time.Hour}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), testsupport.Patience)
	defer cancel()
	s.Close(ctx)
	if got := results(t, s); ctx.Err() != nil || !maps.Equal(got, map[string]float64{"failed": 1, "sent": 1}) {
		t.Errorf("counted %v (%v)", got, ctx.Err())
	}
	if err := s.Apply(Receiver{Endpoint: r.URL, Interval: time.Second}); err != nil || s.provider != nil {
		t.Errorf("a Sender that is closed sends again (%v)", err)
	}
}

func TestASenderThatIsOffHasNoSeries(t *testing.T) {
	r := startReceiver(t)
	s := New(Options{Gather: registry(t).Gather, Warn: new(warnings).add})
	if got := results(t, s); len(got) > 0 {
		t.Errorf("counted %v before it was on", got)
	}
	for _, endpoint := range []string{r.URL + "/otlp/v1/metrics", ""} {
		testsupport.NoError(t, s.Apply(Receiver{Endpoint: endpoint, Interval: time.Hour}))
	}
	s.Close(t.Context())
	if r.exports != 1 || r.path != "/otlp/v1/metrics" {
		t.Errorf("%d exports to %s, want the last one of the receiver that was left", r.exports, r.path)
	}
	if got := results(t, s); len(got) > 0 {
		t.Errorf("counted %v after it was off", got)
	}
}
