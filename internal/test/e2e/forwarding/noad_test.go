package forwarding

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

const noAdConfig = `
deadline: {reserve: 0s}
ssps:
  - {name: fills, endpoints: [%[1]q]}
  - {name: says-no, endpoints: [%[2]q]}
  - {name: fails, endpoints: [%[3]q]}
  - {name: refuses, endpoints: [%[4]q], breaker: {enabled: false}}
routes:
  - {name: empty, match: {path: /empty}, ssps: [fills, says-no, fails, refuses], client_choice: true, on_error: no_ad}
  - {name: vast, match: {path: /vast}, ssps: [fills, says-no, fails, refuses], client_choice: true, on_error: no_ad, no_ad: vast}
`

func TestOnErrorNoAdReplacesErrorsByTheRoutesNoAd(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(noAdConfig, e2e.Healthy(t).URL(), noBid(t).URL(), respondingWith(t, 404).URL(), e2e.Failing(t, sspsim.Faults{Refuse: true}).URL()))
	c := ab.Dial()
	for _, row := range []struct {
		target, field string
		status        int
		source        string
		outcome       string
		origin        string // SSP of the no-ad that counts; "" if none does
	}{
		{"/empty", "", 200, "ssp/fills", "fill", ""},
		{"/empty/says-no", "", 204, "ssp/says-no", "no_bid", "ssp"},
		{"/empty/fails", "", 204, "ssp/fails", "client_error", "proxy"},
		{"/empty/refuses", "", 204, "proxy/connect_failed", "connect_failed", "proxy"},
		{"/empty/fills", "X-Adbuffer-Timeout-Ms: 1", 204, "proxy/deadline", "deadline", "proxy"},
		{"/empty/unknown", "", 404, "proxy/unknown_ssp", "unknown_ssp", ""},
		{"/empty", "X-Adbuffer-Timeout-Ms: x", 400, "proxy/bad_request", "bad_request", ""},
		{"/vast/fails", "", 200, "ssp/fails", "client_error", "proxy"},
		{"/vast/refuses", "", 200, "proxy/connect_failed", "connect_failed", "proxy"},
		{"/vast/says-no", "", 204, "ssp/says-no", "no_bid", "ssp"},
	} {
		var fields []string
		if row.field != "" {
			fields = append(fields, row.field)
		}
		route := "route=" + row.target[1:len("empty")+1]
		if row.target[1] == 'v' {
			route = "route=vast"
		}
		before := ab.Scrape()
		a := c.Get(row.target, fields...).WantStatus(row.target, row.status).WantSource(row.source)
		after := ab.Scrape()
		vast := row.target[1] == 'v' && row.origin == "proxy"
		if want := `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<VAST version="4.2"/>` + "\n"; vast && (a.Body != want || a.Header("Content-Type") != "application/xml; charset=utf-8") {
			t.Errorf("%s: %v %q, want an empty VAST document", row.target, a.Fields, a.Body)
		}
		if row.status == 204 && a.Body != "" {
			t.Errorf("%s: a 204 with a body", row.target)
		}
		rose := func(name string, labels ...string) float64 {
			return after.Value(name, labels...) - before.Value(name, labels...)
		}
		testsupport.Equal(t, rose("adbuffer_requests_total", route, "outcome="+row.outcome), 1, "%[2]s: outcome %[3]s rose by %[1]v", row.target, row.outcome)
		for _, origin := range []string{"proxy", "ssp"} {
			want := 0.0
			if origin == row.origin {
				want = 1
			}
			testsupport.Equal(t, rose("adbuffer_no_ad_total", route, "origin="+origin), want, "%[2]s: no_ad_total of origin %[3]s rose by %[1]v", row.target, origin)
		}
	}
}
