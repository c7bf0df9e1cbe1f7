package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// A request that failed is found by its id in the response's header, the error body, the access log, the capture, the
// span, and on the page.
func TestAFailedRequestOfEachModeIsFoundByItsIDEverywhere(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		spans strings.Builder
	)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // protobuf, in which texts stand as they are
		mu.Lock()
		defer mu.Unlock()
		spans.Write(b)
	}))
	t.Cleanup(receiver.Close)

	modes := []string{"single", "split", "waterfall", "parallel-first", "parallel-all"}
	config := "admin: {capture: true}\nlog: {access: {enabled: true, sample: 0}}\nserver: {request_id: {header: X-Trace}}\ntracing: {sample: 1, endpoint: \"" + receiver.URL + "\"}\nssps:\n"
	routes := "routes:\n"
	for _, m := range modes {
		config += fmt.Sprintf("  - {name: of-%[1]s, endpoints: [\"http://127.0.0.1:1/bid\"]}\n  - {name: second-%[1]s, endpoints: [\"http://127.0.0.1:1/bid\"]}\n", m)
		routes += fmt.Sprintf("  - {name: %[1]s, mode: %[1]s, match: {path: /%[1]s}, ssps: [of-%[1]s, second-%[1]s]}\n", m)
	}
	routes = strings.Replace(routes, "ssps: [of-split, second-split]", "ssps: [{name: of-split, weight: 1}, {name: second-split, weight: 0}]", 1)
	ab := e2e.Start(t, config+routes)
	for _, m := range modes {
		id := "find-" + m
		captured := make(chan string, 1)
		go func() {
			_, body, err := ab.TryAskAdmin("/capture?n=1&wait=30s&ssp=of-" + m)
			captured <- fmt.Sprint(body, err)
		}()
		var in string
		testsupport.Eventually(t, "the capture of "+m+" has the request", func() bool {
			a := ab.Get("/"+m, "X-Trace: "+id)
			if a.Header("X-Trace") != id {
				t.Errorf("%s: the header has the id %q", m, a.Header("X-Trace"))
			}
			if m == "parallel-all" { // its envelope is no error
				a.WantStatus("merged", 200)
			} else if a.WantStatus("no SSP can be reached", 502); !strings.Contains(a.Body, `"id":"`+id+`"`) {
				t.Errorf("%s: the body is %s", m, a.Body)
			}
			select {
			case in = <-captured:
				return true
			default:
				return false
			}
		})
		if !strings.Contains(in, `"id": "`+id+`"`) {
			t.Errorf("%s: captured %s", m, in)
		}
		testsupport.Eventually(t, "the span of "+m+" comes", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(spans.String(), id)
		})
		if m != "parallel-all" { // which did not fail
			testsupport.Eventually(t, "the access log has "+m, func() bool { return strings.Contains(ab.Log.String(), `"id":"`+id+`"`) })
		}
	}
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	b.run(chromedp.Click("#failures summary"), chromedp.WaitVisible("#failures tbody tr"))
	var rows string
	b.eval(`document.querySelector("#failures tbody").textContent`, &rows)
	for _, m := range modes[:4] {
		if !strings.Contains(rows, "find-"+m) || !strings.Contains(rows, "connect_failed") {
			t.Errorf("the page has no failure of %s: %s", m, rows)
		}
	}
}
