package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"adbuffer/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an OTLP receiver on loopback.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	spans  map[string]*otlp.Span
	paths  []string
	status int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{spans: map[string]*otlp.Span{}, status: http.StatusOK}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err == nil && req.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	var v collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &v)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || r.status != http.StatusOK {
		w.WriteHeader(max(r.status, http.StatusBadRequest))
		return
	}
	r.paths = append(r.paths, req.URL.Path)
	for _, rs := range v.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans[s.Name] = s
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// send makes spans of exchanges, and returns what the receiver got.
func (r *receiver) send(t *testing.T, o Options, exchanges ...*Exchange) (map[string]*otlp.Span, *Tracer) {
	t.Helper()
	o.Endpoint = r.URL
	tracer, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exchanges {
		e.Trace = tracer.Begin(e.TraceParent)
		tracer.Ended(e)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans, tracer
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// dialled is an exchange that waited for a connection with TLS.
func dialled() *Exchange {
	at := time.Unix(1_700_000_000, 0)
	return &Exchange{
		SSP: "openx", Endpoint: "rtb.openx.example:8443", Attempts: 2, RequestID: []byte("req-1"), TraceParent: []byte(parent), Method: upstream.POST, Protocol: upstream.HTTP2, Outcome: upstream.Fill, Status: 200,
		Times: upstream.Times{
			Queued: at, Acquired: at.Add(50 * time.Millisecond), FirstByte: at.Add(130 * time.Millisecond), Done: at.Add(140 * time.Millisecond),
			DNS: 5 * time.Millisecond, TCP: 15 * time.Millisecond, TLS: 20 * time.Millisecond,
		},
	}
}

func wantSpan(t *testing.T, s *otlp.Span, parent *otlp.Span, from, to time.Duration) {
	t.Helper()
	if s == nil {
		t.Fatal("the span did not come")
	}
	start := dialled().Times.Queued.UnixNano()
	if got, want := int64(s.StartTimeUnixNano)-start, int64(from); got != want {
		t.Errorf("%s begins after %v, want %v", s.Name, time.Duration(got), time.Duration(want))
	}
	if got, want := int64(s.EndTimeUnixNano)-start, int64(to); got != want {
		t.Errorf("%s ends after %v, want %v", s.Name, time.Duration(got), time.Duration(want))
	}
	if parent != nil && !bytes.Equal(s.ParentSpanId, parent.SpanId) {
		t.Errorf("%s is not below %s", s.Name, parent.Name)
	}
	if got := hex.EncodeToString(s.TraceId); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("%s is of trace %s, not of the client's", s.Name, got)
	}
}

func TestSpansSayWhereTheTimeWent(t *testing.T) {
	r := newReceiver(t)
	spans, tracer := r.send(t, Options{Sample: 0}, dialled())
	root := spans["ssp openx"]
	wantSpan(t, root, nil, 0, 140*time.Millisecond)
	if got := hex.EncodeToString(root.ParentSpanId); got != "b7ad6b7169203331" {
		t.Errorf("the span's parent is %s, not the client's span", got)
	}
	if dialledSpan := spans["dial"]; bytes.Equal(dialledSpan.SpanId, root.SpanId) || bytes.Equal(spans["pending"].SpanId, root.SpanId) {
		t.Error("two spans have one id")
	}
	wantSpan(t, spans["pending"], root, 0, 50*time.Millisecond)
	wantSpan(t, spans["dial"], spans["pending"], 10*time.Millisecond, 30*time.Millisecond)
	wantSpan(t, spans["tls"], spans["pending"], 30*time.Millisecond, 50*time.Millisecond)
	wantSpan(t, spans["first_byte"], root, 50*time.Millisecond, 130*time.Millisecond)
	text := root.String()
	for _, want := range []string{"adbuffer.outcome", "fill", "http2", "POST", "req-1", "int_value:200", "server.address", "rtb.openx.example", "int_value:8443", "network.protocol.version", "http.request.resend_count"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if len(spans) != 5 || r.paths[0] != "/v1/traces" {
		t.Errorf("%d spans, sent to %v", len(spans), r.paths)
	}
	wantCounts(t, tracer, 5, 5, 0)
}

func wantCounts(t *testing.T, tracer *Tracer, made, sent, failed int) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(tracer)
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got[0].Metric {
		want := map[string]int{"made": made, "sent": sent, "failed": failed}[m.Label[0].GetValue()]
		if int(m.Counter.GetValue()) != want {
			t.Errorf("%s: %v spans, want %d", m.Label[0].GetValue(), m.Counter.GetValue(), want)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestARequestThatGotNoPlaceHasOneSpanAndAnError(t *testing.T) {
	e := dialled()
	e.Times.Acquired, e.Times.FirstByte = time.Time{}, time.Time{}
	e.Err, e.Outcome, e.Status = &upstream.Error{Outcome: upstream.PendingFull, Detail: "see pool.max_pending"}, upstream.PendingFull, 0
	spans, _ := newReceiver(t).send(t, Options{}, e)
	wantSpan(t, spans["pending"], spans["ssp openx"], 0, 140*time.Millisecond)
	if s := spans["ssp openx"].Status; len(spans) != 2 || s.Code != otlp.Status_STATUS_CODE_ERROR || s.Message != "see pool.max_pending" {
		t.Errorf("%d spans, status %v", len(spans), s)
	}
}

func TestTheClientDecidesAboutSamplingAndElseTheShare(t *testing.T) {
	for _, c := range []struct {
		parent string
		sample float64
		want   bool
	}{
		{parent, 0, true},
		{strings.TrimSuffix(parent, "01") + "00", 1, false},
		{"", 1, true},
		{"", 0, false},
		{"nonsense", 1, true},
		{"nonsense", 0, false},
	} {
		e := dialled()
		e.TraceParent = []byte(c.parent)
		if spans, _ := newReceiver(t).send(t, Options{Sample: c.sample}, e); (len(spans) > 0) != c.want {
			t.Errorf("traceparent %q, sample %v: %d spans", c.parent, c.sample, len(spans))
		}
	}
}

func TestSpansThatCannotBeSentAreCounted(t *testing.T) {
	r := newReceiver(t)
	r.status = http.StatusForbidden
	spans, tracer := r.send(t, Options{Sample: 1}, dialled())
	if len(spans) != 0 {
		t.Errorf("%d spans", len(spans))
	}
	wantCounts(t, tracer, 5, 0, 5)
}

func TestCloseEndsWithItsContextWithoutAReceiver(t *testing.T) {
	block := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer s.Close()
	defer close(block)
	tracer, err := New(Options{Endpoint: s.URL, Sample: 1})
	if err != nil {
		t.Fatal(err)
	}
	e := dialled()
	e.Trace = tracer.Begin(e.TraceParent)
	tracer.Ended(e)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tracer.Close(ctx); err == nil {
		t.Error("Close says that all was sent")
	}
	if n := tracer.exporter.sent.Load(); n != 0 {
		t.Errorf("%d spans count as sent", n)
	}
}

func TestTraceParentByTheRules(t *testing.T) {
	for v, want := range map[string]bool{
		parent: true,
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": true,
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": false,
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more":  false,
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01":      false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331":         false,
		"00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01":      false,
		"": false,
	} {
		if _, ok := parseTraceParent([]byte(v)); ok != want {
			t.Errorf("%q: %v, want %v", v, ok, want)
		}
	}
}

// A traceparent that is taken says what it says: written again, it is the same.
func FuzzTraceParent(f *testing.F) {
	f.Add([]byte(parent))
	f.Add([]byte("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-09-x"))
	f.Fuzz(func(t *testing.T, v []byte) {
		p, ok := parseTraceParent(v)
		if !ok {
			return
		}
		if got := p.TraceID().String() + "-" + p.SpanID().String(); got != string(v[3:52]) || p.IsSampled() != (hexBit(v[54])&1 == 1) {
			t.Errorf("%q was read as %s, sampled %v", v, got, p.IsSampled())
		}
	})
}

func hexBit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

func TestTheSpanHasTheIDsThatTheSSPWasSent(t *testing.T) {
	for _, from := range []string{"", parent, "nonsense"} {
		r := newReceiver(t)
		tracer, err := New(Options{Endpoint: r.URL, Sample: 1})
		if err != nil {
			t.Fatal(err)
		}
		e := dialled()
		e.TraceParent = []byte(from)
		e.Trace = tracer.Begin(e.TraceParent)
		tracer.Ended(e)
		if err := tracer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		root := r.spans["ssp openx"]
		if !bytes.Equal(root.SpanId, e.Trace.SpanID[:]) || !bytes.Equal(root.TraceId, e.Trace.TraceID[:]) || e.Trace.Continued != (from == parent) {
			t.Errorf("%q: the span is %x of %x, and %+v was sent", from, root.SpanId, root.TraceId, e.Trace)
		}
	}
}
