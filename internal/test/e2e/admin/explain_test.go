package admin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// explained is the output of explain --json.
type explained struct {
	Route, Client string
	BudgetMs      float64 `json:"budget_ms"`
	BudgetFrom    string  `json:"budget_from"`
	Refused       *struct {
		Outcome string
		Status  int
	}
	SSPs []struct {
		SSP     string
		Request struct {
			Method, URL, Body string
			BodyBytes         int `json:"body_bytes"`
			Fields            [][2]string
		}
	}
}

func TestExplainShowsTheSSPsRequestByFileAndByProcess(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	config := fmt.Sprintf(`
server: {via: false}
ssps:
  - {name: openx, endpoints: ["%s?key=s3cret"], headers: {pass: [Cookie], set: [{name: X-Partner, value: s3cret}]}}
routes:
  - {name: video, match: {path: /fillbuffer, query: [{name: format, value: video}]}, ssps: [openx]}
`, s.URL())
	ab := e2e.Start(t, config)
	request := []string{"-H", "X-Adbuffer-Timeout-Ms: 150", "-H", "X-Internal: 1", "-H", "Cookie: id=s3cret", "--data", `{"id":"1"}`, "--client", "203.0.113.9", "--json", "/fillbuffer?format=video&pub=1"}
	ab.Post("/fillbuffer?format=video&pub=1", `{"id":"1"}`, "X-Adbuffer-Timeout-Ms: 15000", "X-Internal: 1", "Cookie: id=s3cret").WantFill("openx")
	got := s.Requests()[0]
	for by, args := range map[string][]string{
		"file":    append([]string{"explain", "--config", e2e.WriteConfig(t, config)}, request...),
		"process": append([]string{"explain", "--admin", "http://" + ab.AdminAddr}, request...),
	} {
		out, stderr, code := e2e.Run(t, nil, args...)
		testsupport.MustTrue(t, code == 0, "by %s: %d %s", by, code, stderr)
		testsupport.True(t, !strings.Contains(out, "s3cret"), "by %s: a secret is in %s", by, out)
		var x explained
		testsupport.NoError(t, json.Unmarshal([]byte(out), &x))
		if x.Route != "video" || x.BudgetMs != 145 || x.BudgetFrom != "X-Adbuffer-Timeout-Ms" || x.Client != "203.0.113.9" || x.Refused != nil || len(x.SSPs) != 1 {
			t.Fatalf("by %s: %+v", by, x)
		}
		q := x.SSPs[0].Request
		if q.Method != got.Method || q.URL != strings.TrimSuffix(s.URL(), "/bid")+strings.ReplaceAll(got.Target, "s3cret", "(hidden)") || q.Body != string(got.Body) {
			t.Errorf("by %s: %+v, and the SSP got %s %s %s", by, q, got.Method, got.Target, got.Body)
		}
		names := make(map[string]bool)
		for _, f := range q.Fields {
			names[f[0]] = true
		}
		for _, f := range got.Header {
			if f.Name != "Host" && f.Name != "Content-Length" && !names[f.Name] {
				t.Errorf("by %s: the SSP got %s, which is not among %v", by, f.Name, q.Fields)
			}
		}
	}
	e2e.WantRequests(t, s, 1) // explaining sends no request

	out, _, code := e2e.Run(t, nil, "explain", "--admin", "http://"+ab.AdminAddr, "/fillbuffer")
	testsupport.True(t, code == 0 && strings.Contains(out, "404 no_route") && strings.Contains(out, "no SSP is asked"), "%d %s", code, out)
	for _, args := range [][]string{{"explain", "/x"}, {"explain", "--admin", "http://" + ab.AdminAddr, "--client", "unknown", "/x"}, {"explain", "--admin", "http://" + ab.AdminAddr, "-H", "no colon", "/x"}} {
		if _, stderr, code := e2e.Run(t, nil, args...); code != 2 || stderr == "" {
			t.Errorf("%q: exit status %d, %s", args, code, stderr)
		}
	}
}

// The largest request that is forwarded can be explained too.
func TestPOSTExplainTakesTheLargestRequest(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, "server: {max_body_bytes: 4194304}\n"+e2e.Single(s.URL()))
	body := strings.Repeat("x", 4<<20)
	status, got := ab.SendAdmin("POST", "/explain", fmt.Sprintf("POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	var x explained
	if err := json.Unmarshal([]byte(got), &x); status != 200 || err != nil || x.Refused != nil || len(x.SSPs) != 1 || x.SSPs[0].Request.BodyBytes != len(body) {
		t.Errorf("%d, %v: %.300s", status, err, got)
	}
}

// The listener's status is about the question, and not about the request: 200 if there is an explanation, which may
// be a refusal.
func TestPOSTExplainSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, "server: {max_body_bytes: 2000, max_header_bytes: 1024}\n"+e2e.Single(s.URL()))
	const fine = "POST /fillbuffer HTTP/1.1\r\nHost: a\r\n"
	long := func(n int) string {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", fine, n, strings.Repeat("x", n))
	}
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		refused                  string // the outcome and status of the explanation, "" for none
		names                    []string
	}{
		{"a good request", "POST", "/explain", long(2), 200, "", []string{`"ssp": "openx"`, `"route": "default"`}},
		{"another method", "GET", "/explain", "", 405, "", []string{"Method Not Allowed"}},
		{"PUT", "PUT", "/explain", long(2), 405, "", []string{"Method Not Allowed"}},
		{"a client that is no address", "POST", "/explain?client=unknown", long(2), 400, "", []string{`client="unknown"`, "IP address"}},
		{"over the limit of the message", "POST", "/explain", long(1_060_000), 413, "", []string{"1051600", "adbuffer explain --config"}},
		{"far over max_body_bytes", "POST", "/explain", long(1 << 20), 200, "too_large 413", []string{"server.max_body_bytes", "2000"}},
		{"nothing", "POST", "/explain", "", 200, "bad_request 400", []string{"no complete request"}},
		{"JSON, not a request", "POST", "/explain", `{"url":"/fillbuffer"}`, 200, "bad_request 400", []string{"the head ended early"}},
		{"no end of the header", "POST", "/explain", fine, 200, "bad_request 400", []string{"the head ended early"}},
		{"half a body", "POST", "/explain", strings.TrimSuffix(long(9), "xx"), 200, "bad_request 400", nil},
		{"an unknown route", "POST", "/explain", "GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 200, "no_route 404", []string{"routes[].match"}},
		{"an unknown method", "POST", "/explain", "PUT /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 200, "method_not_allowed 405", nil},
		{"over max_body_bytes", "POST", "/explain", long(2001), 200, "too_large 413", []string{"server.max_body_bytes", "2000"}},
		{"over max_header_bytes", "POST", "/explain", fine + "X: " + strings.Repeat("x", 2000) + "\r\nContent-Length: 0\r\n\r\n", 200, "too_large 431", []string{"server.max_header_bytes", "1024"}},
	} {
		status, body := ab.SendAdmin(row.method, row.path, row.body)
		var x explained
		refused := ""
		if status == 200 {
			if err := json.Unmarshal([]byte(body), &x); err != nil {
				t.Errorf("%s: %v", row.name, err)
			} else if x.Refused != nil {
				refused = fmt.Sprintf("%s %d", x.Refused.Outcome, x.Refused.Status)
			}
		}
		if status != row.status || refused != row.refused {
			t.Errorf("%s: %d, refused %q; want %d, %q: %s", row.name, status, refused, row.status, row.refused, body)
		}
		for _, name := range row.names {
			testsupport.True(t, strings.Contains(body, name), "%s: the response lacks %q: %s", row.name, name, body)
		}
	}
	e2e.WantRequests(t, s, 0)
}
