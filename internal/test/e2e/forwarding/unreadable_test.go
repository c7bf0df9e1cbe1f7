package forwarding

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
)

const maintenance = "<!DOCTYPE html>\n<html><body>Back soon</body></html>\n"

// startSSP starts an SSP that responds with 200, contentType and body to each request, and returns its URL.
func startSSP(t *testing.T, contentType, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/bid"
}

// A 200 that is neither an ad nor a no-bid is a failure of the SSP, in each of these modes.
func TestAResponseThatIsNoAdIsAFailure(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
log: {access: {enabled: true, sample: 0}}
ssps:
  - {name: html, endpoints: [%q], no_bid_body: openrtb, breaker: {enabled: false}}
  - {name: ads, endpoints: [%q]}
routes:
  - {name: single, match: {path: /single}, ssps: [html]}
  - {name: masks, match: {path: /masks}, ssps: [html], on_error: no_ad, on_error_status: [5xx], no_ad: openrtb}
  - {name: waterfall, match: {path: /waterfall}, mode: waterfall, ssps: [html, ads]}
  - {name: split, match: {path: /split}, mode: split, ssps: [{name: html, weight: 1}]}
  - {name: first, match: {path: /first}, mode: parallel-first, ssps: [html, ads]}
  - {name: merges, match: {path: /merges}, mode: parallel-all, merge: openrtb, ssps: [html, ads]}
`, startSSP(t, "text/html", maintenance), e2e.Healthy(t).URL()))
	const body = `{"id":"r-1","imp":[{"id":"i"}]}`
	a := ab.Post("/single", body).WantStatus("single", 200).WantSource("ssp/html")
	if a.Body != maintenance {
		t.Errorf("single responds with %q", a.Body)
	}
	if a := ab.Post("/masks", body).WantStatus("masks", 200).WantSource("ssp/html"); a.Body != `{"id":"r-1","nbr":1}`+"\n" {
		t.Errorf("on_error: no_ad responds with %q", a.Body)
	}
	ab.Post("/split", body).WantStatus("split", 200).WantSource("ssp/html")
	ab.Post("/waterfall", body).WantFill("ads")
	if a := ab.Post("/merges", body).WantStatus("merges", 200); !strings.Contains(a.Body, `"ext":{"seatnonbid":[{"seat":"html","nonbid":[{"impid":"i","statuscode":102}]}]}`) {
		t.Errorf("merged into %s", a.Body)
	}
	ab.AwaitMetric(5, "adbuffer_ssp_requests_total", "ssp=html", "outcome=unreadable")
	ab.WantMetric(1, "adbuffer_requests_total", "route=single", "outcome=unreadable")
	ab.WantMetric(1, "adbuffer_requests_total", "route=masks", "outcome=unreadable")
	ab.WantMetric(1, "adbuffer_requests_total", "route=split", "outcome=unreadable")
	ab.WantMetric(1, "adbuffer_masked_total", "route=masks")
	ab.WantMetric(1, "adbuffer_merge_left_out_total", "ssp=html", "part=response")
	ab.WantLogged("request", "route=single", "status=200", "outcome=unreadable", "error=the body (text/html, 52 bytes) begins with <!DOCTYPE%20html>%0A<html><body>Back%20")
	_, text := ab.AskAdmin("/failures")
	var last struct {
		Failures []struct{ Route, Outcome, Error string }
	}
	if err := json.Unmarshal([]byte(text), &last); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	found := 0
	for _, f := range last.Failures {
		if f.Outcome == "unreadable" && strings.HasPrefix(f.Error, "the body (text/html, 52 bytes) begins with ") {
			found++
		}
	}
	if found != 3 {
		t.Errorf("%d of the last failures are unreadable, want 3: %s", found, text)
	}
	ab.Post("/first", body).WantFill("ads") // the other leg ends as unreadable or as cancelled
}

// The breaker sheds requests to an SSP of unreadable responses, and an endpoint that sends them is ejected.
func TestUnreadableResponsesOpenTheBreakerAndEjectAnEndpoint(t *testing.T) {
	t.Parallel()
	html := startSSP(t, "text/html", maintenance)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: alone, endpoints: [%q], no_bid_body: vast, breaker: {min_requests: 10}}
  - {name: two, endpoints: [%[1]q, %q], no_bid_body: vast, ejection: {min_requests: 5}, breaker: {enabled: false}}
routes:
  - {name: alone, match: {path: /alone}, ssps: [alone]}
  - {name: two, match: {path: /two}, ssps: [two]}
`, html, startSSP(t, "application/xml", `<VAST version="4.2"><Ad id="1"><InLine/></Ad></VAST>`)))
	for range 100 {
		ab.Get("/alone")
		ab.Get("/two")
	}
	if n := ab.Metric("adbuffer_ssp_requests_total", "ssp=alone", "outcome=breaker_open"); n < 20 { // the breaker sheds a part of the requests, in proportion to the failures
		t.Errorf("the breaker has shed %v of 100 requests", n)
	}
	if n := ab.Metric("adbuffer_ssp_requests_total", "ssp=two", "outcome=fill"); n < 80 {
		t.Errorf("%v of 100 requests got an ad, want all but those that the failing endpoint got", n)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(html, "http://"), "/bid")
	if n := ab.Metric("adbuffer_endpoint_requests_total", "ssp=two", "endpoint="+host, "outcome=unreadable"); n < 5 || n > 20 { // each endpoint gets every second request
		t.Errorf("the endpoint has served %v of 100 requests, want 5 to 20: then it is ejected", n)
	}
}
