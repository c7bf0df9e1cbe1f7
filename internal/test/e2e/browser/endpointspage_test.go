package browser

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// The page shows each endpoint, and its buttons change states after the operator has confirmed.
func TestEndpointsOnThePage(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps: [{name: openx, endpoints: [%q, {url: %q, weight: 3}]}, {name: dead, endpoints: ["http://%s/bid"]}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx, dead], client_choice: true}]
`, a.URL(), b.URL(), testsupport.FreeAddr(t)))
	for range 8 {
		ab.Get("/fillbuffer").WantFill("openx")
	}
	br := openPage(t, "http://"+ab.AdminAddr+"/")
	choices := make(chan bool, 10) // the operator's confirmations
	asked := make(chan string, 10)
	chromedp.ListenTarget(br.ctx, func(event any) {
		if e, ok := event.(*page.EventJavascriptDialogOpening); ok {
			asked <- e.Message
			go chromedp.Run(br.ctx, page.HandleJavaScriptDialog(<-choices))
		}
	})
	name := a.Addr()
	row := fmt.Sprintf(`tr[data-endpoint="%s"]`, name)
	ab.Get("/fillbuffer/dead").WantSource("proxy/connect_failed")
	dead := br.fresh().SSPs["dead"]
	if !strings.HasPrefix(dead["now"], "down: 1 of 1 endpoints unreachable: connection refused") || strings.Contains(dead["now"], "no connection") || dead["advice"] != "" {
		t.Errorf("an SSP that refuses connections is shown as %q, with the advice %q", dead["now"], dead["advice"])
	}
	testsupport.Eventually(t, "the log says so too", func() bool {
		return regexp.MustCompile(`"msg":"no connection to an endpoint can be opened",.*"ssp":"dead"`).MatchString(ab.Log.String())
	})
	testsupport.Equal(t, dead["breaker"], "Unreachable", "its state is %q")
	var visible bool
	br.eval(fmt.Sprintf("document.querySelector(%q).checkVisibility()", row), &visible)
	testsupport.True(t, !visible, "the card without trouble is not short beside the card of the dead SSP")
	br.click(`article[data-ssp="openx"] .unfold`)
	if got := br.text(row); !strings.Contains(got, "enabled") || !strings.Contains(got, "25 %") {
		t.Errorf("the endpoint's row says %q", got)
	}
	choices <- false
	br.click(row + ` button[data-set="draining"]`)
	if q := <-asked; !strings.Contains(q, name) || !strings.Contains(q, "Drain") {
		t.Errorf("the page asked %q", q)
	}
	br.fresh()
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+name, "state=enabled") // not confirmed

	choices <- true
	br.click(row + ` button[data-set="draining"]`)
	<-asked
	testsupport.Eventually(t, "the row says draining", func() bool { return strings.Contains(br.text(row), "draining") })
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+name, "state=draining")
	testsupport.Eventually(t, "the page shows the change", func() bool { return strings.Contains(br.text("#done"), "draining") })

	choices <- true
	br.click(`article[data-ssp="openx"] [data-by-hand] button[data-set="disabled"]`)
	<-asked
	testsupport.Eventually(t, "the card says disabled", func() bool {
		return strings.Contains(br.text(`article[data-ssp="openx"] [data-field="ssp-state"]`), "disabled")
	})
	ab.WantMetric(1, "adbuffer_ssp_state", "ssp=openx", "state=disabled")
	br.wantNoProblems()
}
