package admin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
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
			Fields            [][2]string
		}
	}
}

func TestExplainSaysByFileAndByProcessWhatTheSSPGets(t *testing.T) {
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
		if code != 0 {
			t.Fatalf("by %s: %d %s", by, code, stderr)
		}
		if strings.Contains(out, "s3cret") {
			t.Errorf("by %s: a secret is in %s", by, out)
		}
		var x explained
		if err := json.Unmarshal([]byte(out), &x); err != nil {
			t.Fatal(err)
		}
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
	if code != 0 || !strings.Contains(out, "404 no_route") || !strings.Contains(out, "no SSP is asked") {
		t.Errorf("%d %s", code, out)
	}
	for _, args := range [][]string{{"explain", "/x"}, {"explain", "--admin", "http://" + ab.AdminAddr, "--client", "unknown", "/x"}, {"explain", "--admin", "http://" + ab.AdminAddr, "-H", "no colon", "/x"}} {
		if _, stderr, code := e2e.Run(t, nil, args...); code != 2 || stderr == "" {
			t.Errorf("%q: exit status %d, %s", args, code, stderr)
		}
	}
}
