package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// prebidJS is Prebid.js 11.36.0 (Apache License 2.0) with its module prebidServerBidAdapter: in dist/chunks of the npm
// package prebid.js, the files chunk-core, fpdUtils, viewport, creative-renderer-safe, creative-renderer-display,
// prebid-core, ortbConverter, pbsExtensions, currencyUtils, consentManagement and prebidServerBidAdapter, and then
// "pbjs.processQueue();".
//
//go:embed testdata/prebid.js.gz
var prebidJS []byte

// bidder is an SSP that bids the price for each impression, in the seat of its name.
func bidder(t *testing.T, name string, price float64) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			ID  string
			Imp []struct{ ID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Errorf("%s got no BidRequest: %v", name, err)
		}
		var bids []map[string]any
		for _, imp := range q.Imp {
			bids = append(bids, map[string]any{
				"id": name + imp.ID, "impid": imp.ID, "price": price, "adm": "<b>" + name + "</b>", "crid": "1", "w": 300, "h": 250,
				"ext": map[string]any{"prebid": map[string]string{"type": "banner"}},
			})
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"id": q.ID, "seatbid": []any{map[string]any{"seat": name, "bid": bids}}})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Prebid.js on a page of another origin sends an auction, with cookies, to a merged route, and gets the bids of both
// SSPs. It gets none from a route without cors. A script can read an error to a request that needed a preflight.
func TestPrebidJSReadsTheBidsOfAMergedRoute(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prebid.js" {
			fmt.Fprint(w, `<!doctype html><script src="/prebid.js"></script><div id="slot"></div>`)
			return
		}
		w.Header().Set("Content-Type", "text/javascript")
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(prebidJS)
	}))
	t.Cleanup(page.Close)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps: [{name: alpha, endpoints: [%q]}, {name: beta, endpoints: [%q]}]
routes:
  - {name: open, match: {path: /open}, mode: parallel-all, merge: openrtb, ssps: [alpha, beta], cors: {origins: [%q], credentials: true}}
  - {name: closed, match: {path: /closed}, mode: parallel-all, merge: openrtb, ssps: [alpha, beta]}
`, bidder(t, "alpha", 1.5), bidder(t, "beta", 2.5), page.URL), "ADBUFFER_DEADLINE_DEFAULT=10m", "ADBUFFER_DEADLINE_MAX=10m")
	script := fmt.Sprintf(`(async () => {
  const auction = path => new Promise(done => {
    const url = %q + path;
    pbjs.setConfig({bidderTimeout: 60000, s2sConfig: {
      accountId: "1", adapter: "prebidServer", enabled: true, bidders: ["alpha", "beta"], timeout: 60000,
      endpoint: {p1Consent: url, noP1Consent: url},
    }});
    pbjs.requestBids({
      adUnits: [{code: "slot", mediaTypes: {banner: {sizes: [[300, 250]]}}, bids: [{bidder: "alpha", params: {}}, {bidder: "beta", params: {}}]}],
      bidsBackHandler: all => done(((all.slot || {}).bids || []).map(b => [b.bidderCode, b.cpm, b.currency, b.ad].join(" ")).sort().join(", ")),
    });
  });
  const open = await auction("/open"), closed = await auction("/closed");
  const error = await fetch(%[1]q + "/open", {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: "{}"});
  return [open, closed, error.status, (await error.json()).error].join("; ");
})()`, "http://"+ab.TrafficAddr)
	var got string
	testsupport.NoError(t, chromedp.Run(startChromium(t), chromedp.Navigate(page.URL), chromedp.Evaluate(script, &got, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	})))
	const want = "alpha 1.5 USD <b>alpha</b>, beta 2.5 USD <b>beta</b>; ; 400; bad_request"
	testsupport.Equal(t, got, want, "the page has %q")
	ab.WantMetric(1, "adbuffer_requests_total", "route=open", "outcome=merged")
	ab.WantMetric(1, "adbuffer_requests_total", "route=closed", "outcome=merged")
}
