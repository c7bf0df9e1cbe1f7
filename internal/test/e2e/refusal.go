package e2e

import (
	"strings"

	"adbuffer/internal/test/testsupport"
)

// Refusal is an error response of adbuffer, with all values that operators may rely on.
type Refusal struct {
	Status int
	Reason string   // "pending_full"
	Route  string   // the metric's label; "" is default
	SSP    string   // the SSP that the body names; "" = none
	Names  []string // words of the detail: the limit's value, the setting to change
}

// WantRefusal sends one request with do, and checks status, X-Adbuffer-Source,
// body and metric of the response.
func (ab *Process) WantRefusal(what string, want Refusal, do func() *Response) *Response {
	ab.T.Helper()
	if want.Route == "" {
		want.Route = "default"
	}
	before := ab.Scrape()
	a := do()
	for range 3 { // a breaker lets a share of the requests pass, and then the next one must be refused
		if want.Reason != "breaker_open" || a.Header("X-Adbuffer-Source") != "ssp/"+want.SSP {
			break
		}
		before = ab.Scrape()
		a = do()
	}
	after := ab.Scrape()
	a.WantStatus(what, want.Status).WantSource("proxy/" + want.Reason)
	e := ErrorOf(a)
	if e.Error != want.Reason || e.SSP != want.SSP {
		ab.T.Errorf("%s: body %s, want error %q of ssp %q", what, a.Body, want.Reason, want.SSP)
	}
	for _, name := range want.Names {
		testsupport.True(ab.T, strings.Contains(e.Detail, name), "%s: detail %q does not name %q", what, e.Detail, name)
	}
	if !strings.HasSuffix(e.Detail, "see the runbook, entry "+want.Reason) || strings.ContainsAny(e.Detail, "\r\n") || strings.Contains(e.Detail, ". ") {
		ab.T.Errorf("%s: detail %q is not one sentence that names the runbook's entry", what, e.Detail)
	}
	testsupport.True(ab.T, a.Header("Date") != "", "%s: no Date", what)
	wantOne := func(name string, labels ...string) {
		ab.T.Helper()
		rose := after.Sum(name, labels...) - before.Sum(name, labels...)
		testsupport.Equal(ab.T, rose, 1, "%[2]s: %[3]s%[4]v rose by %[1]v", what, name, labels)
	}
	wantOne("adbuffer_requests_total", "route="+want.Route, "outcome="+want.Reason)
	wantOne("adbuffer_requests_total")
	if want.SSP != "" {
		wantOne("adbuffer_ssp_requests_total", "ssp="+want.SSP, "outcome="+want.Reason)
	}
	return a
}
