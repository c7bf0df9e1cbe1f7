package tls

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport/chromiumtest"
)

// A page requests fifty ads at once. Each request gets its own response, over one HTTP/2
// connection.
func TestABrowserUsesHTTP2(t *testing.T) {
	t.Parallel()
	s, e := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection("")+e2e.Single(s.URL()))
	ctx := chromiumtest.Start(t, chromedp.IgnoreCertErrors)
	const script = `(async () => {
  const one = async i => {
    const body = "id=" + i + "x".repeat(i * 100);
    const res = await fetch("/fillbuffer?i=" + i, i % 2 ? {} : {method: "POST", body});
    await res.text();
    return res.status + " " + res.headers.get("X-Adbuffer-Source");
  };
  const responses = await Promise.all([...Array(50).keys()].map(one));
  const protocols = performance.getEntries().filter(e => e.nextHopProtocol).map(e => e.nextHopProtocol);
  return [...new Set(responses), ...new Set(protocols), protocols.length].join("; ");
})()`
	var got string
	err := chromedp.Run(ctx, chromedp.Navigate("https://"+ab.TrafficAddr+"/fillbuffer"), chromedp.Evaluate(script, &got, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, "200 ssp/openx; h2; 5") { // 51, and the page's icon if the browser requested it
		t.Errorf("the page got %s", got)
	}
	ab.WantMetric(51, "adbuffer_requests_total", "route=default", "outcome=fill")
	ab.WantMetric(0, "adbuffer_client_http2_errors_total")
}
