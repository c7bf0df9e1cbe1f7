package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestThePageListsAFailedRequestWithItsID(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, e2e.Single("http://127.0.0.1:1/", ""), "ADBUFFER_SERVER_REQUEST_ID_HEADER=X-Trace")
	ab.Get("/fillbuffer", "X-Trace: find-me").WantStatus("no SSP listens", 502)
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	b.click("#failures summary")
	testsupport.Eventually(t, "the page has the failure", func() bool {
		var rows string
		b.eval(`document.querySelector("#failures tbody").textContent`, &rows)
		return strings.Contains(rows, "find-me") && strings.Contains(rows, "connect_failed") && strings.Contains(rows, " s ago")
	})
	b.run(chromedp.SendKeys("#failures-of", "another"))
	testsupport.Eventually(t, "the filter leaves no failure of another SSP", func() bool {
		var rows int
		b.eval(`document.querySelectorAll("#failures tbody tr").length`, &rows)
		return rows == 0
	})
}
