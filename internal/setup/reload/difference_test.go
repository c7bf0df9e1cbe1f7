package reload

import (
	"strings"
	"testing"
	"unicode/utf8"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

func TestATableShowsWhereLongValuesDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	for _, c := range []struct{ was, is, wantWas, wantIs string }{
		{"", "", "-", "-"},
		{"64", "128", "64", "128"},
		{long + "old", long + "new", "…" + strings.Repeat("é", cellContext) + "old", "…" + strings.Repeat("é", cellContext) + "new"},
		{"a" + long, "", "a" + strings.Repeat("é", cellWidth-2) + "…", "-"},
		{long, long + "x", "…" + strings.Repeat("é", cellContext), "…" + strings.Repeat("é", cellContext) + "x"},
	} {
		was, is := cells(c.was, c.is)
		testsupport.True(t, was == c.wantWas && is == c.wantIs, "%.10q and %.10q are shown as %q and %q, want %q and %q", c.was, c.is, was, is, c.wantWas, c.wantIs)
		n := max(utf8.RuneCountInString(was), utf8.RuneCountInString(is))
		testsupport.True(t, n <= cellWidth, "%.10q and %.10q take %d characters", c.was, c.is, n)
	}
}

func TestTheVerdictCountsTheEffectsOfAReload(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	d := Difference{URL: "http://admin", Version: "v1", Verdict: Applies, Changes: []config.Change{
		{Path: "ssps[a].pool.max_conns", Old: "1", New: "2", Effect: config.InPlace},
		{Path: "ssps[b]", New: "[http://b]", Effect: config.NewPool},
		{Path: "ssps[a].tls.ca_file", New: "ca.pem", Effect: config.NewPool},
		{Path: "ssps[a].max_in_flight", Old: "1", New: "2", Effect: config.InPlace},
	}}
	d.Write(&b, "new.yaml", "v1", true)
	want := "# a reload would apply 4 changes: 2 in place, 1 added, with a pool of its own, 1 new pool, the old one drains\n"
	testsupport.True(t, b.String() == want, "it says %q, want %q", b.String(), want)
	d.Changes = append(d.Changes, config.Change{Path: "admin.listen", Old: "1", New: "2", Effect: config.Restart})
	d.Verdict = NeedsRestart
	b.Reset()
	d.Write(&b, "new.yaml", "v1", true)
	testsupport.True(t, strings.Contains(b.String(), "a restart is needed for admin.listen;"), "it says %q", b.String())
	b.Reset()
	d.Version = "v0"
	d.Write(&b, "new.yaml", "v1", false)
	testsupport.True(t, strings.Contains(b.String(), "runs version v0") && strings.Count(b.String(), "\n") == 8, "it says %s", b.String())
}
