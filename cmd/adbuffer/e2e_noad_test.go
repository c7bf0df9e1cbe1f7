package main

import (
	"testing"

	"adbuffer/internal/sspsim"
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
  - {name: vast, match: {path: /vast}, ssps: [fills, says-no, fails, refuses], client_choice: true, on_error: no_ad, no_ad: vast, vast_version: "3.0"}
`

func TestOnErrorNoAdReplacesErrorsByTheRoutesNoAd(t *testing.T) {
	t.Parallel()
	ab := start(t, sprintf(noAdConfig, healthy(t).URL(), noBid(t).URL(), answeringWith(t, 404).URL(), failing(t, sspsim.Faults{Refuse: true}).URL()))
	c := ab.dial()
	for _, row := range []struct {
		target, field string
		status        int
		source        string
		outcome       string
		origin        string // of the no-ad that counts; "" where none does
	}{
		{"/empty", "", 200, "ssp/fills", "fill", ""},
		{"/empty/says-no", "", 204, "ssp/says-no", "no_bid", "ssp"},
		{"/empty/fails", "", 204, "ssp/fails", "client_error", "proxy"},
		{"/empty/refuses", "", 204, "proxy/connect_failed", "connect_failed", "proxy"},
		{"/empty/fills", "X-Adbuffer-Timeout-Ms: 1", 204, "proxy/deadline", "deadline", "proxy"},
		{"/empty/nobody", "", 404, "proxy/unknown_ssp", "unknown_ssp", ""},
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
		before := ab.scrape()
		a := c.get(row.target, fields...).wantStatus(row.target, row.status).wantSource(row.source)
		after := ab.scrape()
		vast := row.target[1] == 'v' && row.origin == "proxy"
		if want := `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<VAST version="3.0"/>` + "\n"; vast && (a.body != want || a.header("Content-Type") != "application/xml; charset=utf-8") {
			t.Errorf("%s: %v %q, want an empty VAST document", row.target, a.fields, a.body)
		}
		if row.status == 204 && a.body != "" {
			t.Errorf("%s: a 204 with a body", row.target)
		}
		rose := func(name string, labels ...string) float64 {
			return after.value(name, labels...) - before.value(name, labels...)
		}
		if n := rose("adbuffer_requests_total", route, "outcome="+row.outcome); n != 1 {
			t.Errorf("%s: outcome %s rose by %v", row.target, row.outcome, n)
		}
		for _, origin := range []string{"proxy", "ssp"} {
			want := 0.0
			if origin == row.origin {
				want = 1
			}
			if n := rose("adbuffer_no_ad_total", route, "origin="+origin); n != want {
				t.Errorf("%s: no_ad_total of origin %s rose by %v, want %v", row.target, origin, n, want)
			}
		}
	}
}

func TestErrorDetailFalseNamesNoLimitsAndNoSSP(t *testing.T) {
	t.Parallel()
	s := failing(t, sspsim.Faults{Refuse: true})
	ab := start(t, "server: {error_detail: false, max_body_bytes: 10}\n"+single(s.URL()))
	for _, row := range []struct {
		name string
		do   func() *answer
		body string
	}{
		{"connect_failed", func() *answer { return ab.get("/fillbuffer") }, `{"error":"connect_failed"}` + "\n"},
		{"no_route", func() *answer { return ab.get("/") }, `{"error":"no_route"}` + "\n"},
		{"too_large", func() *answer { return ab.post("/fillbuffer", "0123456789a") }, `{"error":"too_large"}` + "\n"},
	} {
		if a := row.do().wantSource("proxy/" + row.name); a.body != row.body {
			t.Errorf("%s: body %q, want %q", row.name, a.body, row.body)
		}
	}
}

func TestWhatCountsAsAFillIsConfigured(t *testing.T) {
	t.Parallel()
	document := sspsim.Answer{NoBid: sspsim.Every(2), NoBidForm: sspsim.NoBidDocument}
	rtb, vast := document, document
	vast.Kind = sspsim.VAST
	ab := start(t, sprintf(`
ssps:
  - {name: rtb, endpoints: [%q], no_bid_body: openrtb}
  - {name: vast, endpoints: [%q], no_bid_body: vast}
  - {name: any, endpoints: [%q]}
  - {name: nothing, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [rtb, vast, any, nothing], client_choice: true}
`, sspWith(t, sspsim.Behaviour{Answer: rtb}).URL(), sspWith(t, sspsim.Behaviour{Answer: vast}).URL(), sspWith(t, sspsim.Behaviour{Answer: rtb}).URL(),
		sspWith(t, sspsim.Behaviour{Answer: sspsim.Answer{NoBid: sspsim.Always, NoBidForm: sspsim.NoBidEmpty}}).URL()))
	c := ab.dial()
	for _, row := range []struct {
		ssp        string
		fill, none float64
	}{{"rtb", 2, 2}, {"vast", 2, 2}, {"any", 4, 0}, {"nothing", 0, 4}} {
		for range 4 {
			c.get("/fillbuffer/" + row.ssp).wantFill(row.ssp) // 200, whatever it counts as
		}
		ab.wantMetric(row.fill, "adbuffer_ssp_requests_total", "ssp="+row.ssp, "outcome=fill")
		ab.wantMetric(row.none, "adbuffer_ssp_requests_total", "ssp="+row.ssp, "outcome=no_bid")
	}
	ab.wantMetric(8, "adbuffer_no_ad_total", "route=default", "origin=ssp")
}
