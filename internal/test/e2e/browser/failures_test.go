package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// Failures with the same cause share a row, which shows their number and the last of them.
func TestThePageListsAFailedRequestWithItsID(t *testing.T) {
	t.Parallel()
	ssp := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	ab := e2e.Start(t, e2e.Single(ssp.URL(), ""), "ADBUFFER_SERVER_REQUEST_ID_HEADER=X-Trace")
	for _, id := range []string{"first", "second", "find-me"} {
		ab.Get("/fillbuffer", "X-Trace: "+id).WantStatus("the SSP fails", 503)
	}
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	b.click("#failures summary")
	testsupport.Eventually(t, "the page has the failure", func() bool {
		var rows string
		b.eval(`document.querySelector("#failures tbody").textContent`, &rows)
		return strings.Contains(rows, "find-me") && strings.Contains(rows, "server_error") && strings.Contains(rows, " s ago3 ×") && !strings.Contains(rows, "first")
	})
	b.run(chromedp.SendKeys("#failures-of", "another"))
	testsupport.Eventually(t, "the filter leaves no failure of another SSP", func() bool {
		var rows int
		b.eval(`document.querySelectorAll("#failures tbody tr").length`, &rows)
		return rows == 0
	})
}
