package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// finder is an adbuffer with a route for each mode, whose SSPs receive requests and never respond.
type finder struct {
	*e2e.Process
	t     *testing.T
	spans *e2e.OTLPReceiver

	mu  sync.Mutex // guards ids
	ids map[string]bool
}

// reached records the id that an SSP received, and waits until adbuffer closes the connection.
func (f *finder) reached(_ http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.ids[r.URL.Path+" "+r.Header.Get("X-Trace")] = true
	f.mu.Unlock()
	<-r.Context().Done()
}

func startFinder(t *testing.T, modes []string) *finder {
	f := &finder{t: t, spans: e2e.StartOTLPReceiver(t), ids: make(map[string]bool)}
	ssp := httptest.NewServer(http.HandlerFunc(f.reached))
	t.Cleanup(ssp.Close)
	config := fmt.Sprintf(`
admin: {capture: true}
log: {access: {enabled: true, sample: 0, slow: 100ms}}
server: {request_id: {header: X-Trace, to_ssp: true}}
tracing: {sample: 1, endpoint: %q}
ssp_defaults: {breaker: {enabled: false}}
ssps:
`, f.spans.URL)
	routes := "routes:\n"
	for _, m := range modes {
		for _, name := range []string{"of-" + m, "second-" + m} {
			config += fmt.Sprintf("  - {name: %[1]s, endpoints: [\"%[2]s/%[1]s\"]}\n", name, ssp.URL)
		}
		ssps := fmt.Sprintf("of-%[1]s, second-%[1]s", m)
		if m == "split" {
			ssps = "{name: of-split, weight: 1}, {name: second-split, weight: 0}"
		}
		routes += fmt.Sprintf("  - {name: %[1]s, mode: %[1]s, match: {path: /%[1]s}, ssps: [%[2]s]}\n", m, ssps)
	}
	f.Process = e2e.Start(t, config+routes)
	return f
}

// sent reports whether the SSP received the id.
func (f *finder) sent(ssp, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ids["/"+ssp+" "+id]
}

// request sends requests with the id until a capture has one, and returns the capture.
func (f *finder) request(mode, id string) (shown string) {
	f.t.Helper()
	captured := make(chan string, 1)
	go func() {
		_, body, err := f.TrySendAdmin("GET", "/capture?n=1&wait=30s&ssp=of-"+mode, "")
		captured <- fmt.Sprint(body, err)
	}()
	testsupport.Eventually(f.t, "the capture of "+mode+" has the request", func() bool {
		a := f.Get("/"+mode, "X-Trace: "+id, "X-Adbuffer-Timeout-Ms: 400")
		if a.Header("X-Trace") != id {
			f.t.Errorf("%s: the header has the id %q", mode, a.Header("X-Trace"))
		}
		if mode == "parallel-all" { // its envelope has the failures
			if a.WantStatus("merged", 200); strings.Count(a.Body, `"error":"deadline"`) != 2 {
				f.t.Errorf("%s: the body is %s", mode, a.Body)
			}
		} else if a.WantStatus("no SSP responds", 504); !strings.Contains(a.Body, `"id":"`+id+`"`) {
			f.t.Errorf("%s: the body is %s", mode, a.Body)
		}
		select {
		case shown = <-captured:
			return true
		default:
			return false
		}
	})
	return shown
}

// hasSpans reports whether the request and its first leg have spans with the id.
func (f *finder) hasSpans(mode, id string) bool {
	for _, name := range []string{"GET " + mode, "ssp of-" + mode} {
		found := false
		for _, s := range f.spans.Named(name) {
			found = found || e2e.Attribute(s, "adbuffer.request_id") == id
		}
		if !found {
			return false
		}
	}
	return true
}

// hasLine reports whether the access log has the request as a failure. For parallel-all, whose
// envelope is no failure, it must be a slow request with two failed legs.
func (f *finder) hasLine(mode, id string) bool {
	for _, line := range f.Log.Lines("request") {
		if line["id"] != id {
			continue
		}
		legs, _ := line["legs"].([]any)
		if mode != "parallel-all" {
			return line["logged_for"] == "failure" && line["outcome"] == "deadline"
		}
		return line["logged_for"] == "slow" && len(legs) == 2 && legs[0].(map[string]any)["outcome"] == "deadline"
	}
	return false
}

// A failed request is found by its id in the response's header, the error body, the access log and
// the capture. It is also found in the span, in the request to the SSP, in adbuffer tail, and among
// the last failures.
func TestAFailedRequestOfEachModeIsFoundByItsIDEverywhere(t *testing.T) {
	t.Parallel()
	modes := []string{"single", "split", "waterfall", "parallel-first", "parallel-all"}
	f := startFinder(t, modes)
	for _, m := range modes {
		id := "find-" + m
		live := follow(t, f.Process, "--id", id)
		if shown := f.request(m, id); !strings.Contains(shown, `"id": "`+id+`"`) {
			t.Errorf("%s: captured %s", m, shown)
		}
		testsupport.Eventually(t, "the SSP of "+m+" is sent the id", func() bool {
			if f.sent("of-"+m, id) {
				return true
			}
			f.Get("/"+m, "X-Trace: "+id, "X-Adbuffer-Timeout-Ms: 5000") // the deadline was short for a slow machine
			return false
		})
		testsupport.Eventually(t, "the spans of "+m+" come", func() bool { return f.hasSpans(m, id) })
		testsupport.Eventually(t, "the access log has "+m, func() bool { return f.hasLine(m, id) })
		testsupport.Eventually(t, "tail shows "+m, func() bool {
			f.Get("/"+m, "X-Trace: "+id, "X-Adbuffer-Timeout-Ms: 50") // tail may have begun too late
			return len(live) > 0
		})
		if line := <-live; !strings.Contains(line, `"id":"`+id+`"`) || !strings.Contains(line, `"outcome":"deadline"`) {
			t.Errorf("%s: tail shows %s", m, line)
		}
	}
	failed := modes[:4] // parallel-all does not fail
	for _, m := range failed {
		// If tail began late, the last failures are all of one mode.
		f.Get("/"+m, "X-Trace: find-"+m, "X-Adbuffer-Timeout-Ms: 400")
	}
	for _, m := range failed {
		testsupport.Eventually(t, "/failures has the failure of "+m, func() bool {
			_, failures := f.AskAdmin("/failures") // the page shows the same: package browser
			return strings.Contains(failures, `"find-`+m+`"`) && strings.Contains(failures, `"deadline"`)
		})
	}
}
