package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// receiver is an OTLP receiver on loopback.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	spans  map[string]*otlp.Span // the last span of each name
	all    []*otlp.Span
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
		z, err = gzip.NewReader(bytes.NewReader(body))
		if err == nil {
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
				r.all = append(r.all, s)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// trace makes the spans of one request by run, and returns the spans that the receiver got.
func (r *receiver) trace(t *testing.T, o Options, traceParent string, run func(*Request)) (map[string]*otlp.Span, *Tracer) {
	t.Helper()
	o.Endpoint = r.URL
	tracer, err := New(o)
	testsupport.NoError(t, err)
	run(tracer.Begin([]byte(traceParent), true, []byte("req-1"), time.Now()))
	testsupport.NoError(t, tracer.Close(t.Context()))
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans, tracer
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var begin = time.Unix(1_700_000_000, 0)

// dialled returns an exchange that waited for a connection with TLS.
func dialled(t *testing.T) *exchange.Exchange {
	ex := exchange.AcquireExchange()
	t.Cleanup(ex.Release)
	ex.Endpoint, ex.Attempts, ex.Protocol, ex.Response.Status = "rtb.openx.example:8443", 1, exchange.HTTP2, 200
	ex.Times = exchange.Times{
		Queued: begin, Acquired: begin.Add(50 * time.Millisecond), FirstByte: begin.Add(130 * time.Millisecond), Done: begin.Add(140 * time.Millisecond),
		DNS: 5 * time.Millisecond, TCP: 15 * time.Millisecond, TLS: 20 * time.Millisecond,
	}
	return ex
}

// filled returns a function that runs one attempt with a fill.
func filled(t *testing.T) func(*Request) {
	return func(r *Request) {
		ex, leg := dialled(t), r.Leg("openx", exchange.POST)
		leg.Attempt("").Ended(ex, true, exchange.Fill, nil)
		leg.Ended(ex, exchange.Fill, nil)
		r.Ended(&RequestEnd{Method: "POST", Route: "default", Path: "/fillbuffer", Protocol: "1.1", Status: 200, Outcome: exchange.Fill, From: begin, To: begin.Add(141 * time.Millisecond)})
	}
}

func wantSpan(t *testing.T, s *otlp.Span, parent *otlp.Span, from, to time.Duration) {
	t.Helper()
	testsupport.MustTrue(t, s != nil, "the span did not arrive")
	start := begin.UnixNano()
	if got, want := int64(s.StartTimeUnixNano)-start, int64(from); got != want {
		t.Errorf("%s begins after %v, want %v", s.Name, time.Duration(got), time.Duration(want))
	}
	if got, want := int64(s.EndTimeUnixNano)-start, int64(to); got != want {
		t.Errorf("%s ends after %v, want %v", s.Name, time.Duration(got), time.Duration(want))
	}
	testsupport.True(t, parent == nil || bytes.Equal(s.ParentSpanId, parent.SpanId), "%s is not below %v", s.Name, parent)
	got := hex.EncodeToString(s.TraceId)
	testsupport.True(t, got == "0af7651916cd43dd8448eb211c80319c", "%s is of trace %s, not of the client's", s.Name, got)
}

// wantAttributes checks attributes, each given as "key=value"; "key=" means that the attribute is
// absent.
func wantAttributes(t *testing.T, s *otlp.Span, want ...string) {
	t.Helper()
	got := make(map[string]string)
	for _, a := range s.Attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			got[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			got[a.Key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	for _, w := range want {
		k, v, _ := strings.Cut(w, "=")
		testsupport.True(t, got[k] == v, "%s has %s=%q, want %q", s.Name, k, got[k], v)
	}
}

func TestSpansSayWhereTheTimeWent(t *testing.T) {
	r := newReceiver(t)
	spans, tracer := r.trace(t, Options{Sample: 0}, parent, filled(t))
	root, leg, attempt := spans["POST default"], spans["ssp openx"], spans["attempt"]
	wantSpan(t, root, nil, 0, 141*time.Millisecond)
	testsupport.Equal(t, hex.EncodeToString(root.ParentSpanId), "b7ad6b7169203331", "the span's parent is %s, not the client's span")
	wantSpan(t, leg, root, 0, 140*time.Millisecond)
	wantSpan(t, attempt, leg, 0, 140*time.Millisecond)
	wantSpan(t, spans["pending"], attempt, 0, 50*time.Millisecond)
	wantSpan(t, spans["dial"], spans["pending"], 10*time.Millisecond, 30*time.Millisecond)
	wantSpan(t, spans["tls"], spans["pending"], 30*time.Millisecond, 50*time.Millisecond)
	wantSpan(t, spans["first_byte"], attempt, 50*time.Millisecond, 130*time.Millisecond)
	ids := make(map[string]bool)
	for _, s := range spans {
		ids[string(s.SpanId)] = true
	}
	testsupport.True(t, len(ids) == 7 && r.paths[0] == "/v1/traces", "%d different spans, sent to %v", len(ids), r.paths)
	wantAttributes(t, root, "http.request.method=POST", "url.path=/fillbuffer", "http.response.status_code=200", "network.protocol.version=1.1", "adbuffer.route=default", "adbuffer.request_id=req-1", "error.type=")
	wantAttributes(t, leg, "adbuffer.ssp=openx", "adbuffer.outcome=fill", "adbuffer.request_id=req-1", "adbuffer.attempts=1")
	wantAttributes(t, attempt, "http.request.method=POST", "server.address=rtb.openx.example", "server.port=8443", "network.protocol.version=2",
		"http.response.status_code=200", "adbuffer.outcome=fill", "http.request.resend_count=", "error.type=")
	if root.Kind != otlp.Span_SPAN_KIND_SERVER || leg.Kind != otlp.Span_SPAN_KIND_INTERNAL || attempt.Kind != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("kinds %v, %v, %v", root.Kind, leg.Kind, attempt.Kind)
	}
	wantCounts(t, tracer, 7, 7, 0)
}

// attempts returns the attempts' spans in the order of their start.
func (r *receiver) attempts() (all []*otlp.Span) {
	for _, s := range r.all {
		if s.Name == "attempt" {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *otlp.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	return all
}

func TestEachAttemptHasASpanWhichIsTheParentThatTheSSPGets(t *testing.T) {
	r := newReceiver(t)
	lost := &exchange.Error{Outcome: exchange.ConnLost, Detail: "closed", Stale: true}
	var sent []string
	r.trace(t, Options{}, parent, func(request *Request) {
		leg := request.Leg("openx", exchange.GET)
		for i, c := range []struct {
			kind    string
			outcome exchange.Outcome
			err     *exchange.Error
			status  int
		}{
			{"", exchange.ConnLost, lost, 0},
			{"stale", exchange.Cancelled, &exchange.Error{Outcome: exchange.Cancelled}, 0},
			{"hedge", exchange.ServerError, nil, 503},
		} {
			ex := dialled(t)
			ex.Times.Queued = begin.Add(time.Duration(i) * time.Millisecond)
			ex.Response.Status = c.status
			a := leg.Attempt(c.kind)
			sent = append(sent, string(a.AppendTraceParent(nil)))
			a.Ended(ex, true, c.outcome, c.err)
		}
		leg.Ended(dialled(t), exchange.ServerError, nil)
	})
	all := r.attempts()
	testsupport.MustEqual(t, len(all), 3, "%d attempts")
	for i, s := range all {
		want := "00-0af7651916cd43dd8448eb211c80319c-" + hex.EncodeToString(s.SpanId) + "-01"
		testsupport.True(t, sent[i] == want, "attempt %d: the SSP got %s, want %s", i, sent[i], want)
		testsupport.True(t, bytes.Equal(s.ParentSpanId, r.spans["ssp openx"].SpanId), "attempt %d is not below its leg", i)
	}
	wantAttributes(t, all[0], "error.type=conn_lost", "adbuffer.retry=", "http.request.resend_count=")
	wantAttributes(t, all[1], "error.type=", "adbuffer.outcome=cancelled", "adbuffer.retry=stale", "http.request.resend_count=1")
	wantAttributes(t, all[2], "error.type=503", "adbuffer.retry=hedge", "http.request.resend_count=2", "http.response.status_code=503")
	if all[0].Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || all[0].Status.Message != "closed" || all[1].Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("status %v and %v", all[0].Status, all[1].Status)
	}
}

func TestTheSpansOfALegAreBounded(t *testing.T) {
	r := newReceiver(t)
	var last string
	r.trace(t, Options{}, parent, func(request *Request) {
		leg := request.Leg("openx", exchange.GET)
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				leg.Attempt("not_processed").Ended(dialled(t), true, exchange.ConnLost, &exchange.Error{Outcome: exchange.ConnLost})
			})
		}
		all.Wait()
		last = string(leg.Attempt("not_processed").AppendTraceParent(nil))
		leg.Ended(dialled(t), exchange.ConnLost, &exchange.Error{Outcome: exchange.ConnLost})
	})
	testsupport.Equal(t, len(r.attempts()), maxAttempts, "%d spans of attempts")
	leg := r.spans["ssp openx"]
	wantAttributes(t, leg, "adbuffer.attempts_without_span=45")
	testsupport.True(t, strings.Contains(last, hex.EncodeToString(leg.SpanId)), "an attempt without a span of its own sent %s, want the leg's span %x", last, leg.SpanId)
}

func wantCounts(t *testing.T, tracer *Tracer, made, sent, failed int) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewSource(Descs, tracer.Collect))
	got, err := reg.Gather()
	testsupport.NoError(t, err)
	i := slices.IndexFunc(got, func(f *dto.MetricFamily) bool { return f.GetName() == "adbuffer_trace_spans_total" })
	for _, m := range got[i].Metric {
		want := map[string]int{"made": made, "sent": sent, "failed": failed}[m.Label[0].GetValue()]
		testsupport.True(t, int(m.Counter.GetValue()) == want, "%s: %v spans, want %d", m.Label[0].GetValue(), m.Counter.GetValue(), want)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestARequestThatGotNoPlaceHasNoAttemptAndAnError(t *testing.T) {
	full := &exchange.Error{Outcome: exchange.PendingFull, Detail: "see pool.max_pending"}
	spans, _ := newReceiver(t).trace(t, Options{}, parent, func(r *Request) {
		ex, leg := dialled(t), r.Leg("openx", exchange.GET)
		ex.Times.Acquired, ex.Times.FirstByte = time.Time{}, time.Time{}
		leg.Attempt("").Ended(ex, false, exchange.PendingFull, full)
		leg.Ended(ex, exchange.PendingFull, full)
	})
	wantSpan(t, spans["pending"], spans["ssp openx"], 0, 140*time.Millisecond)
	s := spans["ssp openx"].Status
	testsupport.True(t, len(spans) == 2 && s.Code == otlp.Status_STATUS_CODE_ERROR && s.Message == "see pool.max_pending", "%d spans, status %v", len(spans), s)
	wantAttributes(t, spans["ssp openx"], "error.type=pending_full", "http.response.status_code=")
}

func TestATrustedPeerOrElseTheShareDecidesAboutSampling(t *testing.T) {
	unsampled := strings.TrimSuffix(parent, "01") + "00"
	for _, c := range []struct {
		parent  string
		trusted bool
		sample  float64
		want    bool // traced
	}{
		{parent, true, 0, true},
		{unsampled, true, 1, false},
		{parent, false, 0, false},
		{parent, false, 1, true},
		{unsampled, false, 1, true},
		{"", true, 1, true},
		{"", true, 0, false},
		{"nonsense", true, 1, true},
		{"nonsense", true, 0, false},
	} {
		tracer, err := New(Options{Endpoint: "http://127.0.0.1:1", Sample: c.sample})
		testsupport.NoError(t, err)
		r := tracer.Begin([]byte(c.parent), c.trusted, nil, time.Now())
		testsupport.True(t, (r != nil) == c.want, "%+v: traced %v", c, r != nil)
		testsupport.True(t, r == nil || !r.parent.IsValid() || r.span.TraceID() == r.parent.TraceID(), "%+v: the client's trace is not continued", c)
		testsupport.NoError(t, tracer.Close(t.Context()))
	}
}

func TestPeersCannotHaveMoreRequestsTracedThanTheLimit(t *testing.T) {
	tracer, err := New(Options{Endpoint: "http://127.0.0.1:1"})
	testsupport.NoError(t, err)
	now, traced := tracer.sampler.epoch, uint64(0)
	for i := range 4000 { // 2 seconds
		if tracer.Begin([]byte(parent), true, nil, now.Add(time.Duration(i)*500*time.Microsecond)) != nil {
			traced++
		}
	}
	const want = 600 // a full bucket, and the refill of two seconds
	testsupport.Between(t, traced, want-1, want, "%d of 4000 are traced")
	testsupport.Equal(t, tracer.sampler.overLimit.Load(), 4000-traced, "%d are counted as over the limit")
	testsupport.NoError(t, tracer.Close(t.Context()))
}

func TestARequestThatIsNotTracedAllocatesNothing(t *testing.T) {
	tracer, err := New(Options{Endpoint: "http://127.0.0.1:1", Sample: 0})
	testsupport.NoError(t, err)
	ex, id, unsampled, now := dialled(t), []byte("req-1"), []byte(strings.TrimSuffix(parent, "01")+"00"), time.Now()
	if n := testing.AllocsPerRun(100, func() {
		for _, tp := range [][]byte{nil, unsampled} {
			r := tracer.Begin(tp, true, id, now)
			leg := r.Leg("openx", exchange.GET)
			leg.Attempt("").Ended(ex, true, exchange.Fill, nil)
			leg.Ended(ex, exchange.Fill, nil)
			r.Ended(nil)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	testsupport.NoError(t, tracer.Close(t.Context()))
}

func TestSpansThatCannotBeSentAreCounted(t *testing.T) {
	r := newReceiver(t)
	r.status = http.StatusForbidden
	var warnings []string
	spans, tracer := r.trace(t, Options{Sample: 1, Warn: func(err error) { warnings = append(warnings, err.Error()) }}, "", filled(t))
	testsupport.Equal(t, len(spans), 0, "%d spans")
	wantCounts(t, tracer, 7, 0, 7)
	testsupport.True(t, len(warnings) == 1 && strings.Contains(warnings[0], "403"), "the reason is said as %q, want 403 once", warnings)
}

// A receiver that redirects gets the spans itself or not at all: their header may hold a key.
func TestNoRedirectOfTheReceiverIsFollowed(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=secret")
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var asked, elsewhere atomic.Int64
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
		defer other.Close()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if asked.Add(1); req.Header.Get("Api-Key") != "secret" {
				t.Error("the receiver got no key")
			}
			http.Redirect(w, req, other.URL+"/v1/traces", status)
		}))
		defer s.Close()
		var warnings []string
		tracer, err := New(Options{Endpoint: s.URL, Sample: 1, Warn: func(err error) { warnings = append(warnings, err.Error()) }})
		testsupport.NoError(t, err)
		filled(t)(tracer.Begin(nil, false, nil, time.Now()))
		testsupport.NoError(t, tracer.Close(t.Context()))
		testsupport.Equal(t, asked.Load(), 1, "%[2]d: the receiver was asked %[1]d times", status)
		testsupport.Equal(t, elsewhere.Load(), 0, "%[2]d: %[1]d requests went elsewhere", status)
		wantCounts(t, tracer, 7, 0, 7)
		testsupport.True(t, len(warnings) == 1 && strings.Contains(warnings[0], "answered with a redirect") && strings.Contains(warnings[0], "tracing.endpoint"), "%d: the reason is said as %q", status, warnings)
	}
}

func TestCloseEndsWithItsContextWithoutAReceiver(t *testing.T) {
	block := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer s.Close()
	defer close(block)
	tracer, err := New(Options{Endpoint: s.URL, Sample: 1})
	testsupport.NoError(t, err)
	filled(t)(tracer.Begin(nil, false, nil, time.Now()))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	testsupport.True(t, tracer.Close(ctx) != nil, "Close reports that all spans were sent")
	testsupport.Equal(t, tracer.exporter.sent.Load(), 0, "%d spans count as sent")
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
		_, ok := parseTraceParent([]byte(v))
		testsupport.True(t, ok == want, "%q: %v, want %v", v, ok, want)
	}
}

// A traceparent that is accepted is the same when it is written again.
func FuzzTraceParent(f *testing.F) {
	f.Add([]byte(parent))
	f.Add([]byte("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-09-x"))
	f.Fuzz(func(t *testing.T, v []byte) {
		p, ok := parseTraceParent(v)
		if !ok {
			return
		}
		got := p.TraceID().String() + "-" + p.SpanID().String()
		testsupport.True(t, got == string(v[3:52]) && p.IsSampled() == (hexBit(v[54])&1 == 1), "%q was read as %s, sampled %v", v, got, p.IsSampled())
	})
}

func hexBit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
