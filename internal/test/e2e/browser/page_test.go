package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// browser is a headless Chromium with a profile of its own, on the admin page.
type browser struct {
	t        *testing.T
	ctx      context.Context
	problems chan string // errors in the page's console
}

// openPage starts Chromium, which scripts/install chromium must have installed.
func openPage(t *testing.T, url string) *browser {
	t.Helper()
	ctx := startChromium(t)
	b := &browser{t: t, ctx: ctx, problems: make(chan string, 100)}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problem(e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
				b.problem(e.Entry.Text)
			}
		}
	})
	b.run(log.Enable(), chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url), chromedp.WaitVisible("article:not([data-folded]) .charts, tr[data-row]:not([hidden])"))
	return b
}

func (b *browser) problem(text string) {
	select {
	case b.problems <- text:
	default:
	}
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	testsupport.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// click clicks the middle of an element once it is visible there. One script does all of it: the
// page may move its rows at any moment, and a node that chromedp has found would be lost.
func (b *browser) click(selector string) {
	b.t.Helper()
	testsupport.Eventually(b.t, selector+" can be clicked", func() (clicked bool) {
		b.eval(fmt.Sprintf(`(() => {
  const e = document.querySelector(%q);
  if (!e) return false;
  e.scrollIntoView({block: "center"});
  const r = e.getBoundingClientRect(), at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
  if (!at || !e.contains(at)) return false;
  at.click();
  return true;
})()`, selector), &clicked)
		return clicked
	})
}

// eval runs a script and decodes its result.
func (b *browser) eval(script string, v any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(script, v))
}

// text returns the text of an element.
func (b *browser) text(selector string) (s string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).innerText", selector), &s)
	return s
}

// shown is the content of the page: totals and SSPs by the names of their fields, with the small
// text behind a bar.
type shown struct {
	Totals map[string]string
	SSPs   map[string]map[string]string
}

const readPage = `(() => {
  const fields = root => Object.fromEntries([...root.querySelectorAll("[data-field]")].map(e => [e.dataset.field, e.children.length ? [...e.children].map(c => c.textContent).join("|") : e.textContent]));
  const ssps = {};
  for (const a of document.querySelectorAll("article")) {
    ssps[a.dataset.ssp] = fields(a);
    for (const r of a.querySelectorAll("tr[data-outcome]")) {
      ssps[a.dataset.ssp]["minute " + r.dataset.outcome] = r.children[1].textContent;
      ssps[a.dataset.ssp]["outcome " + r.dataset.outcome] = r.children[2].textContent;
    }
    const m = a.querySelector("[role=meter]");
    ssps[a.dataset.ssp].meter = m.getAttribute("aria-valuenow");
  }
  return {Totals: fields(document.getElementById("totals")), SSPs: ssps};
})()`

// fresh returns the page after a refresh that began after this call.
func (b *browser) fresh() shown {
	b.t.Helper()
	const count = `+document.body.dataset.refreshed || 0`
	var before, now int
	b.eval(count, &before)
	testsupport.Eventually(b.t, "the page refreshes", func() bool { b.eval(count, &now); return now >= before+2 })
	var s shown
	b.eval(readPage, &s)
	return s
}

// number is the first number in a text of the page.
func number(t *testing.T, text string) float64 {
	t.Helper()
	text = strings.TrimLeft(text, "≤ ")
	end := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.,-", r) })
	if end < 0 {
		end = len(text)
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(text[:end], ",", ""), 64)
	testsupport.MustTrue(t, err == nil, "%q has no number", text)
	return v
}

// observedSSP starts adbuffer with an HTTP/1 and an HTTP/2 SSP, and one that
// fails so that its breaker sheds.
func startObserved(t *testing.T, env ...string) (*e2e.Process, *sspsim.SSP) {
	slow := sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}
	alpha := e2e.SSPWith(t, slow)
	beta := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: slow})
	broken := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - name: alpha
    endpoints: [%q]
    pool: {max_conns: 32}
    headers: {set: [{name: X-Api-Key, value: "s3cret"}]}
  - name: beta
    endpoints: [%q]
    tls: {ca_file: %q}
  - name: broken
    endpoints: [%q]
    breaker: {min_requests: 5}
routes:
  - name: default
    match: {path: /fillbuffer}
    ssps: [alpha, beta, broken]
    client_choice: true
  - {name: bids, match: {path: /bids}, ssps: [{name: broken, when: [{path: app, exists: true}]}], on_error: no_ad}
`, alpha.URL(), beta.URL(), e2e.CAFile(t, beta), broken.URL()), env...)
	return ab, alpha
}

var observedTargets = []string{"/fillbuffer/alpha?n=", "/fillbuffer/alpha?n=", "/fillbuffer/beta?n=", "/fillbuffer/broken?n="}

func TestThePageShowsTheValuesOfTheMetrics(t *testing.T) {
	t.Parallel()
	began := time.Now()
	ab, _ := startObserved(t)
	for _, body := range []string{`{"app":{}}`, `{"site":{}}`, `{"app":`} { // a masked error, filtered, unreadable
		ab.Post("/bids", body).WantStatus(body, 204)
	}
	y := ab.StartTraffic(12, 2*time.Millisecond, observedTargets...)
	y.AwaitSent(t, 200)
	b := openPage(t, "http://"+ab.AdminAddr+"/")

	// While traffic runs, counters on the page lie between two scrapes.
	for range 3 {
		before := ab.Scrape()
		page := b.fresh()
		after := ab.Scrape()
		between := func(what, text, name string, labels ...string) {
			t.Helper()
			if v, low, high := number(t, text), before.Sum(name, labels...), after.Sum(name, labels...); v < low || v > high {
				t.Errorf("%s is %v on the page, and was %v before and %v after", what, v, low, high)
			}
		}
		between("requests", page.Totals["requests"], "adbuffer_requests_total")
		between("fills", page.Totals["fill"], "adbuffer_requests_total", "outcome=fill")
		for _, ssp := range []string{"alpha", "beta", "broken"} {
			between(ssp+"'s requests", page.SSPs[ssp]["requests"], "adbuffer_ssp_requests_total", "ssp="+ssp)
		}
		if _, rate, _ := strings.Cut(page.Totals["requests"], "|"); number(t, rate) <= 0 {
			t.Errorf("under traffic the page shows %q requests/s", rate)
		}
	}
	if state := b.fresh().SSPs["broken"]["breaker"]; !strings.HasPrefix(state, "Breaker sheds ") {
		t.Errorf("broken's breaker is shown as %q", state)
	}

	if now := b.fresh().SSPs["broken"]["now"]; !strings.HasPrefix(now, "failing: ") || !strings.Contains(now, " as server_error") {
		t.Errorf("broken's card says %q", now)
	}

	// After the last response, the page and the metrics agree.
	y.Stop()
	ab.AwaitMetric(0, "adbuffer_in_flight_requests")
	for _, ssp := range []string{"alpha", "beta", "broken"} {
		ab.AwaitMetric(0, "adbuffer_pool_connections", "ssp="+ssp, "state=dialing")
	}
	page, m := b.fresh(), ab.Scrape()
	bids := b.text(`#routes tr[data-route="bids"]`)
	if !regexp.MustCompile(`^bids\t[\d.]+ \(66\.7 % filtered\)\t0 %\t0 %\t100 % \(100 % SSP responses replaced by no_ad\)\t`).MatchString(bids) || !strings.HasPrefix(page.Totals["unreadable"], "1|") {
		t.Errorf("the route with conditions is %q, unreadable bodies %q", bids, page.Totals["unreadable"])
	}
	if sick := page.Totals["trouble"]; sick != "1 of 3|worst: broken, failing" {
		t.Errorf("the SSPs in trouble are %q", sick)
	}
	same := func(what, text string, want float64) {
		t.Helper()
		testsupport.Equal(t, number(t, text), want, "%[2]s is %[1]v on the page (%[3]q)", what, text)
	}
	same("requests", page.Totals["requests"], m.Sum("adbuffer_requests_total"))
	same("in flight", page.Totals["in-flight"], 0)
	for ssp, f := range page.SSPs {
		l := "ssp=" + ssp
		same(ssp+"'s requests", f["requests"], m.Sum("adbuffer_ssp_requests_total", l))
		for _, s := range m.All("adbuffer_ssp_requests_total", l) {
			outcome := string(s.Metric["outcome"])
			if s.Value > 0 || f["outcome "+outcome] != "" {
				same(ssp+"'s "+outcome, f["outcome "+outcome], float64(s.Value))
				if time.Since(began) < time.Minute {
					same(ssp+"'s "+outcome+" of the last minute", f["minute "+outcome], float64(s.Value))
				}
			}
		}
		same(ssp+"'s places in use", f["saturation"], m.Value("adbuffer_pool_places_in_use", l))
		_, of, _ := strings.Cut(f["saturation"], " of ")
		same(ssp+"'s places", of, m.Value("adbuffer_pool_places_limit", l))
		same(ssp+"'s queue", f["queue"], m.Value("adbuffer_pool_pending_requests", l))
		same(ssp+"'s connections", f["connections"], m.Sum("adbuffer_pool_connections", l))
		lent := m.Sum("adbuffer_pool_acquire_seconds_count", l, "outcome=reused") + m.Sum("adbuffer_pool_acquire_seconds_count", l, "outcome=dialed") + m.Sum("adbuffer_pool_acquire_seconds_count", l, "outcome=waited")
		if reuse := 100 * (1 - m.Sum("adbuffer_pool_connections_opened_total", l)/lent); number(t, f["reuse"]) < reuse-0.06 || number(t, f["reuse"]) > reuse+0.06 {
			t.Errorf("%s's reuse is %q on the page, and %v %% by the metrics", ssp, f["reuse"], reuse)
		}
		// The page's percentiles are finer than the metric's buckets. The first bucket ends at
		// 10 ms; the bounds of the others grow by less than a factor of three.
		bound := 1000 * quantileOf(m, 0.99, "adbuffer_ssp_request_duration_seconds", l)
		lastMinute, sinceStart, _ := strings.Cut(f["p99"], "|")
		texts := []string{sinceStart}
		if time.Since(began) < time.Minute { // the last minute has all requests
			texts = append(texts, lastMinute)
		}
		for _, text := range texts {
			if p99 := number(t, text); p99 > bound || bound > 10 && !math.IsInf(bound, 1) && p99 < bound/3 {
				t.Errorf("%s's p99 is %q on the page, and at most %v ms by the metrics", ssp, text, bound)
			}
		}
	}
	if now := page.SSPs["broken"]["now"]; !strings.HasPrefix(now, "failing: ") || strings.Contains(now, "the breaker") {
		t.Errorf("a failing SSP says %q, want one cause", now)
	}
	if p := page.SSPs; p["alpha"]["protocol"] != "http1" || p["beta"]["protocol"] != "http2" {
		t.Errorf("the protocols are %q and %q", p["alpha"]["protocol"], p["beta"]["protocol"])
	}
	if advice := page.SSPs["alpha"]["advice"]; !strings.Contains(advice, "pool.max_conns 32 is enough.") {
		t.Errorf("alpha's advice is %q", advice)
	}
	b.wantConfigWithoutSecrets()
	b.wantDrawnCharts()
	b.wantAccessible()
	b.wantNoProblems()
}

// quantileOf is the bound of the bucket in which a quantile falls.
func quantileOf(m *e2e.Scrape, q float64, name string, labels ...string) float64 {
	total := m.Value(name+"_count", labels...)
	for _, s := range m.All(name+"_bucket", labels...) {
		if bound, err := strconv.ParseFloat(string(s.Metric["le"]), 64); err == nil && float64(s.Value) >= q*total {
			return bound
		}
	}
	return 0
}

func (b *browser) wantConfigWithoutSecrets() {
	b.t.Helper()
	b.click("#config summary")
	var text string
	testsupport.Eventually(b.t, "the configuration is shown", func() bool {
		b.eval(`document.querySelector("#config pre").textContent`, &text)
		return text != ""
	})
	if !strings.Contains(text, "max_conns: 32") || !strings.Contains(text, "(hidden)") || strings.Contains(text, "s3cret") {
		b.t.Errorf("the configuration shown is\n%s", text)
	}
}

func (b *browser) wantDrawnCharts() {
	b.t.Helper()
	testsupport.Eventually(b.t, "all charts have a line and ends in time, and say so in words", func() bool {
		var left int
		b.eval(`[...document.querySelectorAll("figure:not([hidden]) svg[data-chart]")].filter(s => !s.children[1].getAttribute("d")?.includes("L") || !s.getAttribute("aria-label")?.includes(" in the last ") || s.nextSibling.textContent !== "5 min agonow").length`, &left)
		return left == 0
	})
}

// wantAccessible checks the rules of accessibility that a program can check, in both colour
// schemes. Elements without text have names, each SSP has a heading, and no information is shown by
// colour alone. The text has enough contrast, and a phone needs no sideways scrolling.
func (b *browser) wantAccessible() {
	b.t.Helper()
	const audit = `(() => {
  const bad = [], rgb = c => c.match(/[\d.]+/g).map(Number), channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = rgb(c).map(channel); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return getComputedStyle(e).backgroundColor; } return "rgb(255, 255, 255)"; };
  if (document.documentElement.scrollWidth > innerWidth) bad.push("the page is " + document.documentElement.scrollWidth + " wide in " + innerWidth);
  for (const r of document.querySelectorAll(".wide, .endpoints")) if (r.scrollWidth > r.clientWidth) bad.push("the table " + (r.ariaLabel ?? r.className) + " is " + r.scrollWidth + " wide in " + r.clientWidth);
  if (!document.documentElement.lang || !document.title) bad.push("no language or title");
  for (const e of document.querySelectorAll("[role=meter],[role=img],article,nav,pre")) if (!e.getAttribute("aria-label")) bad.push(e.tagName + " has no name");
  for (const m of document.querySelectorAll("[role=meter]")) if (!m.getAttribute("aria-valuetext")) bad.push("a meter says no value");
  for (const a of document.querySelectorAll("article")) if (!a.querySelector("h2")) bad.push("an article has no heading");
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !e.getClientRects().length || e.closest("script,noscript")) continue;
    const [x, y] = [light(getComputedStyle(e).color), light(behind(e))].sort((p, q) => q - p), ratio = (x + .05) / (y + .05);
    if (ratio < 4.5) bad.push("contrast " + ratio.toFixed(1) + ": " + walk.currentNode.textContent.trim().slice(0, 40));
  }
  return [...new Set(bad)];
})()`
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{420, 1280} {
			var bad []string
			b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.EmulateViewport(width, 1000), chromedp.Evaluate("scrollTo(0, 0)", nil))
			b.eval(audit, &bad)
			for _, problem := range bad {
				b.t.Errorf("%s, %d wide: %s", scheme, width, problem)
			}
			b.keepScreenshot(fmt.Sprintf("%s-%s-%d.png", b.t.Name(), scheme, width))
		}
	}
}

// keepScreenshot writes a picture into the folder that ADBUFFER_SCREENSHOTS names, if it is set.
func (b *browser) keepScreenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("ADBUFFER_SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name), png, 0o644); err != nil {
		b.t.Error(err)
	}
}

func (b *browser) wantNoProblems() {
	b.t.Helper()
	for {
		select {
		case text := <-b.problems:
			b.t.Errorf("the page's console has: %s", text)
		default:
			return
		}
	}
}

func TestThePageReportsThatAdbufferHasStopped(t *testing.T) {
	t.Parallel()
	ab, _ := startObserved(t)
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	b.fresh()
	ab.ExitIsTested = true
	ab.Stop()
	var text string
	testsupport.Eventually(t, "the page shows that adbuffer does not respond", func() bool {
		b.eval(`document.getElementById("fresh").textContent`, &text)
		return strings.HasPrefix(text, "No response since ")
	})
}

// Text of an operator's configuration must not become markup.
func TestThePageShowsNamesAsText(t *testing.T) {
	t.Parallel()
	ssp := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(ssp.URL()+"?<img/src=x/onerror=document.title='owned'>"))
	b := openPage(t, "http://"+ab.AdminAddr+"/")
	page := b.fresh()
	var title string
	b.eval("document.title", &title)
	if !strings.Contains(page.SSPs["openx"]["endpoint"], "<img") || title != "adbuffer" {
		j, _ := json.Marshal(page)
		t.Errorf("title %q, page %s", title, j)
	}
	b.wantNoProblems()
}
