package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// rows are the SSPs in the table, from top to bottom, without those that the filter
// hides.
func (b *browser) rows() (names []string) {
	b.t.Helper()
	b.eval(`[...document.querySelectorAll("tr[data-row]")].filter(r => !r.hidden).map(r => r.dataset.row)`, &names)
	return names
}

// The rows come worst first: a dead SSP of many is above the saturated one, and its row says why. A
// click on a header sorts by that column.
func TestThePageListsTheWorstOfManySSPsFirst(t *testing.T) {
	t.Parallel()
	slow := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(50 * time.Millisecond)})
	dead := "http://" + testsupport.FreeAddr(t) + "/bid"
	config, names := "ssps:\n", []string{}
	for i := range 50 {
		name := fmt.Sprintf("ssp-%02d", i+1)
		names = append(names, name)
		conns, endpoints := 64, fmt.Sprintf("%q", slow.URL())
		switch name {
		case "ssp-07":
			conns = 2
		case "ssp-44":
			endpoints += fmt.Sprintf(", %q", dead)
		case "ssp-50":
			endpoints = fmt.Sprintf("%q", dead)
		}
		config += fmt.Sprintf("  - {name: %s, endpoints: [%s], pool: {max_conns: %d, max_pending: 100}}\n", name, endpoints, conns)
	}
	config += fmt.Sprintf("routes: [{name: default, match: {path: /fillbuffer}, client_choice: true, ssps: [%s]}]\n", strings.Join(names, ", "))
	ab := e2e.Start(t, config)
	y := ab.StartTraffic(8, time.Millisecond, "/fillbuffer/ssp-07?n=", "/fillbuffer/ssp-07?n=", "/fillbuffer/ssp-07?n=", "/fillbuffer/ssp-44?n=", "/fillbuffer/ssp-50?n=", "/fillbuffer/ssp-03?n=")
	y.AwaitSent(t, 50)
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	testsupport.Eventually(t, "the SSPs without trouble are one line", func() bool {
		rows := b.rows()
		return slices.Contains(rows, "ssp-50") && slices.Contains(rows, "ssp-44") && !slices.Contains(rows, "ssp-01") && strings.Contains(b.text(".healthy"), "SSPs have no trouble: show")
	})
	if sick := b.text(`#totals [data-field="trouble"] > span`); !strings.HasSuffix(sick, " of 50") || number(t, sick) < 2 {
		t.Errorf("the SSPs in trouble are %q", sick)
	}
	b.click(".healthy button")
	testsupport.Eventually(t, "the dead SSP is first, then the one with a dead endpoint, then the one at which requests wait", func() bool {
		rows := b.rows()
		return len(rows) == 50 && rows[0] == "ssp-50" && rows[1] == "ssp-44" && slices.Index(rows, "ssp-07") == 2
	})
	cell := func(row, column string) string {
		return b.text(fmt.Sprintf(`tr[data-row="%s"] [data-column="%s"]`, row, column))
	}
	if text := cell("ssp-50", "trouble"); !strings.HasPrefix(text, "down: 1 of 1 endpoints") || !strings.Contains(text, "connection refused") {
		t.Errorf("the dead SSP's row says %q", text)
	}
	if text := cell("ssp-44", "trouble"); !strings.Contains(text, "degraded: 1 of 2 endpoints") || !strings.Contains(text, "connection refused") {
		t.Errorf("the row of the SSP with a dead endpoint says %q", text)
	}
	if text := cell("ssp-03", "trouble"); text != "no trouble" || cell("ssp-03", "failed") != "0 %" {
		t.Errorf("a healthy SSP's row says %q, failed %q", text, cell("ssp-03", "failed"))
	}
	testsupport.Equal(t, cell("ssp-50", "failed"), "100 %", "of the dead SSP's requests %q failed")
	var rejected string
	b.eval(`(show({...before, ssps: before.ssps.map(r => ({...r, last_minute: {...r.last_minute, rejected: r.last_minute.requests}}))}),
		document.querySelector('tr[data-row="ssp-03"] [data-column="failed"]').dataset.rejected)`, &rejected)
	testsupport.Equal(t, rejected, "100 % rejected", "beside the failures, a phone shows %q")
	routes := b.text("#routes tbody")
	if !strings.HasPrefix(routes, "default\t") || !strings.Contains(routes, "/s") && strings.Count(routes, "%") != 3 {
		t.Errorf("the routes are %q", routes)
	}
	var cards int
	if b.eval(`document.querySelectorAll("article").length`, &cards); cards != 0 {
		t.Errorf("%d cards are open, want none", cards)
	}
	b.click(`#many th[data-column="name"] button`) // descending, then ascending
	b.click(`#many th[data-column="name"] button`)
	testsupport.Eventually(t, "the rows are sorted by name", func() bool { rows := b.rows(); return rows[0] == "ssp-01" && slices.IsSorted(rows) })
	testsupport.True(t, !strings.Contains(b.text("#counted"), "worst"), "the sorted table says %q", b.text("#counted"))
	b.click(`#many th[data-column="name"] button`)
	testsupport.Eventually(t, "the worst is first again, and the table says so", func() bool {
		return b.rows()[0] == "ssp-50" && strings.Contains(b.text("#counted"), "50 SSPs, the worst first")
	})

	b.run(chromedp.SendKeys("#filter", "SSP-1"))
	testsupport.Eventually(t, "the filter leaves ten rows", func() bool {
		rows := b.rows()
		return len(rows) == 10 && !slices.ContainsFunc(rows, func(r string) bool { return !strings.HasPrefix(r, "ssp-1") })
	})
	b.run(chromedp.Evaluate(`(f => { f.value = ""; f.dispatchEvent(new Event("input")); })(document.getElementById("filter"))`, nil))

	b.click(`tr[data-row="ssp-07"] .open`)
	b.run(chromedp.WaitVisible(`tr[data-below="ssp-07"] article .charts`))
	page := b.fresh()
	if f := page.SSPs["ssp-07"]; len(page.SSPs) != 1 || number(t, f["requests"]) < 10 || number(t, f["p50"]) < 50 {
		t.Errorf("the row opens to %v", page.SSPs)
	}
	b.wantDrawnCharts()
	b.click(`tr[data-row="ssp-07"] .open`)
	testsupport.Eventually(t, "the row closes", func() bool {
		b.eval(`document.querySelectorAll("article").length`, &cards)
		return cards == 0
	})

	testsupport.Equal(t, b.text("#notices"), "", "a service without trouble has the notice %q")
	ab.Write("ssps: 7\n")
	testsupport.Eventually(t, "the page says that the file was refused", func() bool {
		text := b.text("#notices")
		return strings.Contains(text, "differs from its file") && strings.Contains(text, "must have at least one route")
	})
	b.click(`tr[data-row="ssp-44"] .open`)
	b.run(chromedp.WaitVisible(`tr[data-below="ssp-44"] article .charts`))
	b.wantAccessible()
	y.Stop()
	b.wantNoProblems()
}
