package forwarding

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"testing"

	"adbuffer/internal/e2e"
)

// Before, a compressed no-bid counted as an ad, and ended a waterfall before the SSP that had an
// ad.
func TestACompressedNoBidLetsTheNextSSPFill(t *testing.T) {
	t.Parallel()
	response := func(body string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		io.WriteString(w, body)
		w.Close()
		return e2e.ScriptedResponse(b.String(), "Content-Type: application/json", "Content-Encoding: gzip")
	}
	ad := response(`{"id":"1","seatbid":[{"bid":[{"id":"1","price":1}]}]}`)
	ab := e2e.Start(t, fmt.Sprintf(`
ssp_defaults: {no_bid_body: openrtb}
ssps:
  - {name: none, endpoints: [%q]}
  - {name: ad, endpoints: [%q]}
routes:
  - {name: waterfall, match: {path: /waterfall}, mode: waterfall, ssps: [none, ad]}
  - {name: first, match: {path: /first}, mode: parallel-first, ssps: [none, ad]}
  - {name: alone, match: {path: /alone}, ssps: [none]}
`, e2e.StartScripted(t, response(`{"id":"1","seatbid":[],"nbr":2}`)), e2e.StartScripted(t, ad)))
	_, body, _ := bytes.Cut([]byte(ad), []byte("\r\n\r\n"))
	for _, path := range []string{"/waterfall", "/first"} {
		res := ab.Post(path, "{}", "Accept-Encoding: gzip").WantStatus(path, 200).WantSource("ssp/ad")
		if res.Body != string(body) || res.Header("Content-Encoding") != "gzip" {
			t.Errorf("%s: the ad was changed: %q", path, res.Body)
		}
	}
	// On a single route the compressed no-bid is forwarded unchanged, and counts as no_bid.
	ab.Post("/alone", "{}", "Accept-Encoding: gzip").WantStatus("a no-bid", 200).WantSource("ssp/none")
	ab.WantMetric(1, "adbuffer_requests_total", "route=alone", "outcome=no_bid")
	ab.WantMetric(0, "adbuffer_ssp_requests_total", "ssp=none", "outcome=fill")
	ab.WantMetric(2, "adbuffer_ssp_requests_total", "ssp=ad", "outcome=fill")
}
