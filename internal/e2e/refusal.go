package e2e

import (
	"strings"
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
	labels := []string{"route=" + want.Route, "outcome=" + want.Reason}
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
		if !strings.Contains(e.Detail, name) {
			ab.T.Errorf("%s: detail %q does not name %q", what, e.Detail, name)
		}
	}
	if !strings.HasSuffix(e.Detail, "see the runbook, entry "+want.Reason) || strings.ContainsAny(e.Detail, "\r\n") || strings.Contains(e.Detail, ". ") {
		ab.T.Errorf("%s: detail %q is not one sentence that names the runbook's entry", what, e.Detail)
	}
	if a.Header("Date") == "" {
		ab.T.Errorf("%s: no Date", what)
	}
	const name = "adbuffer_requests_total"
	if n := after.Sum(name, labels...) - before.Sum(name, labels...); n != 1 {
		ab.T.Errorf("%s: %s%v rose by %v, want 1", what, name, labels, n)
	}
	if n := after.Sum(name) - before.Sum(name); n != 1 {
		ab.T.Errorf("%s: the sum of %s rose by %v, want 1", what, name, n)
	}
	if want.SSP != "" {
		const name = "adbuffer_ssp_requests_total"
		labels := []string{"ssp=" + want.SSP, "outcome=" + want.Reason}
		if n := after.Sum(name, labels...) - before.Sum(name, labels...); n != 1 {
			ab.T.Errorf("%s: %s%v rose by %v, want 1", what, name, labels, n)
		}
	}
	return a
}
