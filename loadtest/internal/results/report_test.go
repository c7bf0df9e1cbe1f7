package results

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/testsupport/chromiumtest"
)

// examples are reports with every kind of chart, row and text.
func examples() []*Report {
	pools := &Report{Kind: "pools", Title: "Pools", Question: "How large?", Started: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), Scale: 0.1,
		Versions: map[string]string{"adbuffer": "adbuffer: dev"}, Verdicts: []Verdict{{Promise: "throughput is N / X", Held: true, Words: "It was."}, {Promise: "no </script> ends the page", Words: "<b>It did.</b>"}},
		Notes: []string{"a note"}, Missing: []string{"envoy"}, Doubts: []string{"row: why"}}
	t := Table{Title: "figures", Columns: []string{"what", "requests/s"}}
	t.AddTheirs("a | pipe", 300)
	t.Add([]string{"the generator was saturated"}, "ours </td><script>alert(1)</script>", 12345.6)
	pools.Tables = []Table{t}
	pools.Charts = []Chart{
		{Title: "lines </script><script>alert(1)</script>", Kind: "line", X: "N", Y: "requests/s", LogX: true, LogY: true, Series: []Series{
			{Name: "measured", Points: []Point{{X: 100, Y: 1000}, {X: 1000, Y: 9000}}}, {Name: "N / X", Dashed: true, Points: []Point{{X: 100, Y: 1000}, {X: 1000, Y: 10000}}}}},
		{Title: "bars", Kind: "bar", Y: "µs", Labels: []string{"a", "b"}, Series: []Series{{Name: "one", Values: []float64{1, 2}}, {Name: "two", Values: []float64{3, 4}}}},
	}
	sick := &Report{Kind: "sick", Title: "Sick", Question: "Does it hurt?", Started: pools.Started,
		Charts: []Chart{{Title: "p99", Kind: "bar", Y: "ms", LogY: true, Labels: []string{"hangs"}, Series: []Series{{Name: "p99", Values: []float64{40}}}}}}
	return []*Report{sick, pools}
}

// written saves the examples and returns the page made of them.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, r := range examples() {
		if _, err := r.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	html, _, err := Write(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	return html
}

// drawnScript returns whether each canvas has a chart, and how many of its pixels are not grey.
const drawnScript = `[...document.querySelectorAll('canvas')].map(c => {
  const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  let coloured = 0;
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] > 200 && Math.max(pixels[i], pixels[i+1], pixels[i+2]) - Math.min(pixels[i], pixels[i+1], pixels[i+2]) > 60) coloured++;
  return {id: c.id, chart: !!Chart.getChart(c), coloured};
})`

func TestBrowserDrawsEveryChartWithoutNetwork(t *testing.T) {
	html := written(t)
	var got []struct {
		ID       string
		Chart    bool
		Coloured int
	}
	var requests []string
	var alerts, broken int
	err := chromedp.Run(chromiumtest.Start(t, chromedp.WindowSize(1280, 1000)),
		chromedp.Navigate((&url.URL{Scheme: "file", Path: filepath.ToSlash(html)}).String()),
		chromedp.WaitReady("main section:last-child"),
		chromedp.Evaluate(drawnScript, &got),
		chromedp.Evaluate(`performance.getEntriesByType('resource').map(e => e.name)`, &requests),
		chromedp.Evaluate(`document.querySelectorAll('td script, li b + b').length`, &alerts),
		chromedp.Evaluate(`document.querySelectorAll('.broken').length`, &broken),
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d canvases, want 3", len(got))
	}
	for _, c := range got {
		if !c.Chart || c.Coloured < 50 {
			t.Errorf("chart %s: made %v, %d coloured pixels", c.ID, c.Chart, c.Coloured)
		}
	}
	if len(requests) != 0 {
		t.Errorf("the page loaded %q", requests)
	}
	if alerts != 0 || broken != 1 {
		t.Errorf("%d texts became elements; %d broken promises shown, want 1", alerts, broken)
	}
}

func TestPageNamesNoOtherFile(t *testing.T) {
	page, err := HTML(examples())
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?i)<(link|img|iframe|script[^>]*src)|@import|sourceMappingURL`).Find(page); m != nil {
		t.Errorf("the page holds %q", m)
	}
	if n := strings.Count(string(page), "<script"); n != 3 {
		t.Errorf("%d scripts, want the library, the data and the drawing", n)
	}
}

func TestMarkdownMarksWhatCannotBeTrusted(t *testing.T) {
	md, err := Markdown(examples())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a \\| pipe (theirs) ", "</script> †", "12 346", "- **BROKEN**: no </script> ends the page", "- missing: envoy", "  - row: why", "2026-11-21 09:00 UTC"} {
		if !strings.Contains(string(md), want) {
			t.Errorf("no %q in:\n%s", want, md)
		}
	}
	if strings.Index(string(md), "## Pools") > strings.Index(string(md), "## Sick") {
		// LoadAll sorts the reports. Markdown keeps their order.
		return
	}
	t.Error("the order given was not kept")
}

func TestFolderWithoutResultsSaysWhatToDo(t *testing.T) {
	_, _, err := Write(t.TempDir(), t.TempDir())
	if err == nil || !strings.Contains(fmt.Sprint(err), "run a load test with --out") {
		t.Errorf("%v", err)
	}
}

func TestMeasurementsStandBetweenTheMarkersOfAReadme(t *testing.T) {
	dir := t.TempDir()
	r := &Report{Kind: "peers", Versions: map[string]string{"haproxy": "haproxy 2.6"}, Tables: []Table{{Title: "ratios", Summary: true, Columns: []string{"proxy"}}, {Title: "all", Columns: []string{"proxy"}}}}
	r.Tables[0].Add(nil, "adbuffer")
	if _, err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "README.md")
	before, after := "# A\n\n"+measuredBegin+"\n", measuredEnd+"\nmore\n"
	for range 2 { // the second time over the first
		text := before + "old\n" + after
		if read, err := os.ReadFile(file); err == nil {
			text = string(read)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := WriteMeasured(dir, file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{before, after, "**ratios**", "adbuffer", "haproxy 2.6"} {
		if strings.Count(string(got), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") || strings.Contains(string(got), "**all**") {
		t.Errorf("more than the summary:\n%s", got)
	}
	if err := os.WriteFile(file, []byte("# none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteMeasured(dir, file); err == nil || !strings.Contains(err.Error(), measuredBegin) {
		t.Errorf("without markers: %v", err)
	}
}
