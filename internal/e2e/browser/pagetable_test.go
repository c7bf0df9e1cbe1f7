package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// rows are the SSPs in the table, from top to bottom, without those that the filter
// hides.
func (b *browser) rows() (names []string) {
	b.t.Helper()
	b.eval(`[...document.querySelectorAll("tr[data-row]")].filter(r => !r.hidden).map(r => r.dataset.row)`, &names)
	return names
}

func TestThePageListsManySSPsBySaturation(t *testing.T) {
	t.Parallel()
	slow := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(50 * time.Millisecond)})
	config, names := "ssps:\n", []string{}
	for i := range 12 {
		name := fmt.Sprintf("ssp-%02d", i+1)
		names = append(names, name)
		conns := 64
		if name == "ssp-07" {
			conns = 2
		}
		config += fmt.Sprintf("  - {name: %s, endpoints: [%q], pool: {max_conns: %d, max_pending: 100}}\n", name, slow.URL(), conns)
	}
	config += fmt.Sprintf("routes: [{name: default, match: {path: /fillbuffer}, client_choice: true, ssps: [%s]}]\n", strings.Join(names, ", "))
	ab := e2e.Start(t, config)
	y := ab.StartTraffic(6, time.Millisecond, "/fillbuffer/ssp-07?n=", "/fillbuffer/ssp-07?n=", "/fillbuffer/ssp-03?n=")
	y.AwaitSent(t, 20)
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	testsupport.Eventually(t, "the most saturated SSP is at the top", func() bool {
		rows := b.rows()
		return len(rows) == 12 && rows[0] == "ssp-07"
	})
	var cards int
	if b.eval(`document.querySelectorAll("article").length`, &cards); cards != 0 {
		t.Errorf("%d cards are open, want none", cards)
	}

	b.run(chromedp.SendKeys("#filter", "SSP-1"))
	testsupport.Eventually(t, "the filter leaves three rows", func() bool {
		rows := b.rows()
		slices.Sort(rows)
		return slices.Equal(rows, []string{"ssp-10", "ssp-11", "ssp-12"})
	})
	b.run(chromedp.Evaluate(`(f => { f.value = ""; f.dispatchEvent(new Event("input")); })(document.getElementById("filter"))`, nil))

	b.click(`tr[data-row="ssp-07"] button`)
	b.run(chromedp.WaitVisible(`tr[data-below="ssp-07"] article .charts`))
	page := b.fresh()
	if f := page.SSPs["ssp-07"]; len(page.SSPs) != 1 || number(t, f["requests"]) < 10 || number(t, f["p50"]) < 50 {
		t.Errorf("the row opens to %v", page.SSPs)
	}
	b.wantDrawnCharts()
	b.wantAccessible()
	b.click(`tr[data-row="ssp-07"] button`)
	testsupport.Eventually(t, "the row closes", func() bool {
		b.eval(`document.querySelectorAll("article").length`, &cards)
		return cards == 0
	})
	y.Stop()
	b.wantNoProblems()
}
