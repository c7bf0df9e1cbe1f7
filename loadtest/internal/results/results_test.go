package results

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.123: "0.12", 9.999: "10.00", 12.34: "12.3", 123.4: "123",
		12345.6: "12 346", 1234567: "1 234 567", -1234: "-1 234"} {
		testsupport.Equal(t, Number(v), want, "%[2]v: %[1]q", v)
	}
	testsupport.Equal(t, Number(math.NaN())+Percent(math.NaN())+Percent(0.5), "––50.00 %", "%q")
}

func TestBrokenPromiseThatRestsOnDoubtsBreaksNothing(t *testing.T) {
	r := new(Report)
	r.Promise("one", true, nil, "%v of %d", 1234.0, 7)
	r.Promise("two", false, []string{"the generator was late"}, "")
	testsupport.True(t, r.Broken() == nil && r.Verdicts[0].Words == "1 234 of 7", "%+v", r.Verdicts)
	r.Promise("three", false, nil, "5 of %d", 6)
	testsupport.Equal(t, r.Broken().Error(), "a promise was broken: three: 5 of 6", "%q")
	text := r.Markdown()
	for _, want := range []string{"- **HELD**: one. 1 234 of 7", "- **BROKEN †**: two.", "- **BROKEN**: three."} {
		testsupport.True(t, strings.Contains(text, want), "no %q in:\n%s", want, text)
	}
}

func TestMarkdownMarksWhatCannotBeTrusted(t *testing.T) {
	r := &Report{Title: "Pools", Started: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
		Versions: map[string]string{"b": "b 2", "a": "a 1"}}
	r.Note("a %s", "note")
	r.Misses("envoy")
	r.Misses("envoy")
	table := r.Table("figures", "what", "requests/s")
	table.AddTheirs("a | pipe", 300)
	table.Add([]string{"the generator was saturated"}, "ours", 12345.6)
	text := r.Markdown()
	for _, want := range []string{"| a \\| pipe (theirs) ", "| ours † ", "12 346",
		"- a note\n- missing: envoy\n- **not", "  - ours: the generator was saturated", "2026-11-21 09:00 UTC",
		"; a 1; b 2\n"} {
		testsupport.True(t, strings.Contains(text, want), "no %q in:\n%s", want, text)
	}
}

func TestMeasurementsStandBetweenTheMarkersOfAReadme(t *testing.T) {
	r := &Report{Versions: map[string]string{"haproxy": "haproxy 2.6"}}
	table := r.Table("ratios", "proxy")
	table.Summary = true
	table.Add(nil, "adbuffer")
	r.Table("all", "proxy")
	file := filepath.Join(t.TempDir(), "README.md")
	before, after := "# A\n\n"+measuredBegin+"\n", measuredEnd+"\nmore\n"
	testsupport.NoError(t, os.WriteFile(file, []byte(before+"old\n"+after), 0o600))
	for range 2 { // the second time over the first
		testsupport.NoError(t, r.WriteMeasured(file))
	}
	got, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	for _, want := range []string{before, after, "**ratios**", "adbuffer", "haproxy 2.6"} {
		testsupport.True(t, strings.Count(string(got), want) == 1, "%q is not there once:\n%s", want, got)
	}
	if strings.Contains(string(got), "old") || strings.Contains(string(got), "**all**") {
		t.Errorf("more than the summary:\n%s", got)
	}
	testsupport.NoError(t, os.WriteFile(file, []byte("# none"), 0o600))
	if err := r.WriteMeasured(file); err == nil || !strings.Contains(err.Error(), measuredBegin) {
		t.Errorf("without markers: %v", err)
	}
}
