package sspsim

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// controlCall sends one request to the control endpoint.
func (s *SSP) controlCall(t *testing.T, method, path, body string, fields ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.ControlURL()+path, strings.NewReader(body))
	testsupport.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		if req.Header.Set(fields[i], fields[i+1]); fields[i] == "Host" {
			req.Host = fields[i+1]
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	testsupport.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testsupport.NoError(t, err)
	return resp.StatusCode, string(text)
}

func startControlled(t *testing.T, o Options) *SSP {
	o.Control = "127.0.0.1:0"
	return start(t, o)
}

func TestControlShowsReplacesAndPatchesTheBehaviour(t *testing.T) {
	s := startControlled(t, Options{Behaviour: Behaviour{Latency: Constant(80 * time.Millisecond), Response: Response{Echo: true}}})
	status, text := s.controlCall(t, "GET", "/behaviour", "")
	var shown Behaviour
	if err := json.Unmarshal([]byte(text), &shown); status != 200 || err != nil || !reflect.DeepEqual(shown, s.Behaviour()) {
		t.Fatalf("GET: %d, %v, %s", status, err, text)
	}
	if status, text = s.controlCall(t, "PATCH", "/behaviour", `{"faults":{"status":{"every":1}}}`); status != 200 {
		t.Fatalf("PATCH: %d %s", status, text)
	}
	want := Behaviour{Latency: Constant(80 * time.Millisecond), Response: Response{Echo: true}, Faults: Faults{Status: Status{Chance: Always}}}
	if got := s.Behaviour(); got.Latency != want.Latency || !got.Response.Echo || got.Faults.Status != want.Faults.Status {
		t.Errorf("after PATCH: %+v", got)
	}
	if status, _ = s.controlCall(t, "PUT", "/behaviour", `{"response":{"no_bid":{"every":1}}}`); status != 200 {
		t.Fatalf("PUT: %d", status)
	}
	if got := s.Behaviour(); got.Latency != (Latency{}) || got.Response.Echo || got.Response.NoBid != Always || got.Faults.Status.Every != 0 {
		t.Errorf("after PUT: %+v", got)
	}
	c := dial(t, s)
	if resp, _ := c.ask("x"); resp.StatusCode != 204 {
		t.Errorf("status %d after PUT", resp.StatusCode)
	}
}

func TestControlReportsAllMistakesAndChangesNothing(t *testing.T) {
	s := startControlled(t, Options{Behaviour: Behaviour{Response: Response{Echo: true}}})
	for _, method := range []string{"PUT", "PATCH"} {
		status, text := s.controlCall(t, method, "/behaviour", `{"latency":{"slow_share":80},"faults":{"hang":{"every":-1}}}`)
		var reply struct{ Errors []string }
		if err := json.Unmarshal([]byte(text), &reply); err != nil || status != 400 || len(reply.Errors) != 2 ||
			!strings.HasPrefix(reply.Errors[0], "latency.slow_share: ") || !strings.HasPrefix(reply.Errors[1], "faults.hang.every: ") {
			t.Errorf("%s: %d %s", method, status, text)
		}
		testsupport.True(t, s.Behaviour().Response.Echo, "%s changed the behaviour", method)
	}
	if status, text := s.controlCall(t, "PUT", "/behaviour", `{"faults":{"rest":{}}}`); status != 400 || !strings.Contains(text, `unknown key \"rest`) {
		t.Errorf("an unknown key: %d %s", status, text)
	}
	if status, text := s.controlCall(t, "PUT", "/behaviour", `{"latency`); status != 400 || !strings.Contains(text, "not JSON") {
		t.Errorf("no JSON: %d %s", status, text)
	}
	if status, _ := s.controlCall(t, "PUT", "/behaviour", strings.Repeat(" ", maxControlBody+1)); status != 413 {
		t.Errorf("oversized body: %d", status)
	}
}

func TestControlShowsCountersAndClosesConnections(t *testing.T) {
	s := startControlled(t, Options{Behaviour: withFaults(Faults{Status: Status{Chance: Every(2)}})})
	c := dial(t, s)
	c.wantOpen()
	c.ask("x")
	_, text := s.controlCall(t, "GET", "/counters", "")
	var n Counters
	if err := json.Unmarshal([]byte(text), &n); err != nil || n.Requests != 2 || n.ByStatus[503] != 1 || n.Faults["status"] != 1 || n.Connections != 1 {
		t.Errorf("counters %s", text)
	}
	if status, _ := s.controlCall(t, "POST", "/close-connections", ""); status != 204 {
		t.Errorf("close: %d", status)
	}
	c.wantEnd()
}

func TestControlIsForLoopbackProgramsOnly(t *testing.T) {
	s := startControlled(t, Options{})
	for _, fields := range [][]string{{"Host", "evil.example:80"}, {"Host", "127.0.0.1"}, {"Origin", "http://127.0.0.1"}} {
		if status, text := s.controlCall(t, "POST", "/close-connections", "", fields...); status != 403 {
			t.Errorf("%v: %d %s", fields, status, text)
		}
	}
	if status, _ := s.controlCall(t, "GET", "/close-connections", ""); status != 405 {
		t.Errorf("GET /close-connections: %d", status)
	}
	testsupport.Equal(t, start(t, Options{}).ControlURL(), "", "a control endpoint that was not configured: %v")
}
