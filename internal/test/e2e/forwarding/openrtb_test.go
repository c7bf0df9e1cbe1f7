package forwarding

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// serveDocumented runs `adbuffer serve --config config/reference.yaml`, the file
// that documents every key, with its SSP openx at s.
func serveDocumented(t testing.TB, s *sspsim.SSP, path string) *e2e.Process {
	t.Helper()
	return e2e.Serve(t, "../../../../config/reference.yaml", append(e2e.Patient(),
		"ADBUFFER_SSPS_OPENX_ENDPOINTS_0=http://"+s.Addr()+path,
		"ADBUFFER_ROUTES_VIDEO_SSPS_OPENX_TIMEOUT=10s", // 120ms is little for a slow machine
		"ADBUFFER_SSPS_OPENX_TIMEOUTS_CONNECT=10s",
	)...)
}

// bidRequest is an OpenRTB 2.6 bid request of 1.2 KB, without a newline at its end.
func bidRequest(t *testing.T) string {
	return strings.TrimSuffix(e2e.ReadFile(t, "testdata/bid-request.json"), "\n")
}

// directly sends a request to an SSP without adbuffer.
func directly(t testing.TB, s *sspsim.SSP, method, target, body string, fields ...string) *e2e.Response {
	t.Helper()
	ab := &e2e.Process{Daemon: &testsupport.Daemon{T: t}, Network: "tcp", TrafficAddr: s.Addr()}
	return ab.Dial().Do(method, target, body, fields...)
}

func TestAnOpenRTBBidRequestAndItsResponseAreForwardedByteForByte(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{
		Size:    sspsim.Size{Constant: 2000},
		Headers: []sspsim.Field{{Name: "x-lower-Case", Value: "a  b"}, {Name: "Cache-Control", Value: "no-store"}, {Name: "X-Again", Value: "1"}, {Name: "X-Again", Value: "2"}},
	}})
	ab := serveDocumented(t, s, "/bid/v2?key=K%2f&v=2.6")
	body := bidRequest(t)
	// adbuffer does not interpret the query.
	const query = "pub=1&cb=1&url=https%3A%2F%2Fa.example%2F%3Fx%3D1&p=a+b%20c&empty=&&novalue&=noname&cb=2&bad=%zz&q=?/:@!$'()*,;\xff&json={\"a\":[1]}"
	a := ab.Post("/fillbuffer?"+query, body,
		"Content-Type: application/json; charset=utf-8",
		"x-openrtb-version: 2.5",
		"User-Agent: exchange/1.0",
		"accept-ENCODING: gzip",
		"X-Internal: secret",
		"Cookie: uid=1",
		"X-Forwarded-For: 203.0.113.77, 198.51.100.4",
		"X-Adbuffer-Timeout-Ms: 20000",
		"X-Trace:   spaces are kept within  ",
		"traceparent: "+traceParent, "tracestate: vendor=1", // without tracing
		"Connection: keep-alive",
		"Keep-Alive: timeout=5",
	).WantFill("openx")

	got := e2e.LastRequest(t, s)
	want := "POST /bid/v2?key=K%2f&v=2.6&" + query + " HTTP/1.1\r\n" +
		"Host: " + s.Addr() + "\r\n" +
		"Content-Type: application/json; charset=utf-8\r\n" +
		"User-Agent: exchange/1.0\r\n" +
		"accept-ENCODING: gzip\r\n" +
		"Cookie: uid=1\r\n" +
		"X-Trace: spaces are kept within\r\n" +
		"traceparent: " + traceParent + "\r\ntracestate: vendor=1\r\n" +
		"X-Forwarded-For: 203.0.113.77, 198.51.100.4\r\n" +
		"Via: " + viaOf(ab) + "\r\n" +
		"X-Openrtb-Version: 2.6\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
	testsupport.True(t, string(got.Head) == want, "the SSP got\n%s\nwant\n%s", got.Head, want)
	testsupport.True(t, string(got.Body) == body, "the SSP got the body\n%s\nwant\n%s", got.Body, body)

	direct := directly(t, s, "POST", "/bid", body)
	testsupport.True(t, a.Body == direct.Body && len(a.Body) == 2000, "the response's body differs from the SSP's:\n%s\nwant\n%s", a.Body, direct.Body)
	for _, f := range direct.Fields {
		if f.Name != "Date" && !slices.Contains(a.Fields, f) {
			t.Errorf("the response lacks the SSP's field %v: %v", f, a.Fields)
		}
	}
	if i, j := slices.Index(a.Fields, e2e.Field{Name: "X-Again", Value: "1"}), slices.Index(a.Fields, e2e.Field{Name: "X-Again", Value: "2"}); i > j {
		t.Errorf("the response's fields are out of order: %v", a.Fields)
	}
	ab.WantMetric(1, "adbuffer_requests_total", "route=default", "outcome=fill")
	ab.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
}

func TestOverHTTP2TheSSPSeesTheSameRequest(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP2, Record: 1})
	ab := e2e.Start(t, e2e.Single("https://"+s.Addr()+"/bid?v=2", "protocol: http2", e2e.Trust(t, s)))
	body := bidRequest(t)
	ab.Post("/fillbuffer?pub=1", body, "Content-Type: application/json", "X-Spelling: Kept", "Connection: x-hop", "X-Hop: 1", "TE: trailers").WantFill("openx")
	got := e2e.LastRequest(t, s)
	want := []sspsim.Field{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: s.Addr()}, {Name: ":path", Value: "/bid?v=2&pub=1"},
		{Name: "content-type", Value: "application/json"}, {Name: "x-spelling", Value: "Kept"}, {Name: "via", Value: viaOf(ab)}, {Name: "content-length", Value: fmt.Sprint(len(body))},
	}
	byName := func(a, b sspsim.Field) int { return strings.Compare(a.Name, b.Name) }
	sorted := slices.SortedFunc(slices.Values(got.Header), byName)
	if slices.SortFunc(want, byName); !slices.Equal(sorted, want) {
		t.Errorf("the SSP got %v\nwant %v", sorted, want)
	}
	testsupport.True(t, string(got.Body) == body, "the SSP got the body %s", got.Body)
}
