package forwarding

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
)

// on_error_status decides which errors of SSPs are masked, and a no-ad in OpenRTB says why there is no ad.
func TestErrorsAreMaskedByANoAdInOpenRTB(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
deadline: {reserve: 0s}
ssps:
  - {name: "404", endpoints: [%q]}
  - {name: "429", endpoints: [%q], retry_after_max: 0s}
  - {name: "503", endpoints: [%q], breaker: {enabled: false}}
  - {name: refuses, endpoints: [%q], breaker: {enabled: false}}
  - {name: limited, endpoints: [%[1]q], qps: {limit: 0.001, burst: 1}}
  - {name: filters, endpoints: [%[1]q]}
routes:
  - name: masks
    match: {path: /bid}
    ssps: ["404", "429", "503", refuses, limited, {name: filters, when: [{path: app, exists: true}]}]
    client_choice: true
    on_error: no_ad
    on_error_status: ["429", 5xx]
    no_ad: openrtb
`, respondingWith(t, 404).URL(), respondingWith(t, 429).URL(), respondingWith(t, 503).URL(), e2e.Failing(t, sspsim.Faults{Refuse: true}).URL()))
	ab.Post("/bid/limited", `{"id":"1"}`).WantStatus("limited", 404) // not masked
	const body = `{"imp":[{"id":"x"}], "id" : "\u0031\"é"}`
	noBidWith := func(nbr int) string { return fmt.Sprintf(`{"id":"\u0031\"é","nbr":%d}`+"\n", nbr) }
	for _, row := range []struct {
		ssp, body, field string
		source           string
		status           int
		want             string
	}{
		{"404", body, "", "ssp/404", 404, ""},
		{"429", body, "", "ssp/429", 200, noBidWith(1)},
		{"503", body, "", "ssp/503", 200, noBidWith(1)},
		{"refuses", body, "", "proxy/connect_failed", 200, noBidWith(1)},
		{"limited", body, "", "proxy/qps_limit", 200, noBidWith(500)},
		{"filters", body, "", "proxy/filtered", 200, noBidWith(501)},
		{"404", body, "X-Adbuffer-Timeout-Ms: 1", "proxy/deadline", 200, noBidWith(15)},
		{"503", `{"imp":[]}`, "", "ssp/503", 204, ""},
		{"503", `{"id":1}`, "", "ssp/503", 204, ""},
		{"503", `{"id":"1","id":"2"}`, "", "ssp/503", 204, ""},
		{"503", `{"id":"1"`, "", "ssp/503", 204, ""},
		{"503", body, "Content-Encoding: gzip", "ssp/503", 204, ""},
		{"503", "", "", "ssp/503", 204, ""},
		{"404", body, "X-Adbuffer-Timeout-Ms: x", "proxy/bad_request", 400, ""},
	} {
		var fields []string
		if row.field != "" {
			fields = append(fields, row.field)
		}
		a := ab.Post("/bid/"+row.ssp, row.body, fields...).WantStatus(row.ssp, row.status).WantSource(row.source)
		if row.status == 200 && (a.Body != row.want || a.Header("Content-Type") != "application/json") {
			t.Errorf("%s %s: %v %s, want %s", row.ssp, row.body, a.Fields, a.Body, row.want)
		}
		if row.status == 204 && a.Body != "" {
			t.Errorf("%s %s: %s", row.ssp, row.body, a.Body)
		}
	}
	ab.WantMetric(8, "adbuffer_masked_total", "route=masks")
	ab.WantMetric(7, "adbuffer_ssp_requests_total", "ssp=503", "outcome=server_error")
	ab.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=429", "outcome=client_error")
}
