package reload

import (
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
)

func TestTheReloadCommandShowsChangesAndErrors(t *testing.T) {
	t.Parallel()
	ssp := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(ssp.URL()))
	for _, c := range []struct {
		text string
		args []string
		code int
		want []string // in one line
	}{
		{e2e.Single(ssp.URL()), nil, 0, []string{"# http://" + ab.AdminAddr + ": configuration unchanged, changes: 0"}},
		{e2e.Single(ssp.URL(), "max_in_flight: 7"), nil, 0, []string{"ssps[openx].max_in_flight: 0 -> 7 (in place)"}},
		{e2e.Single(ssp.URL(), "max_in_flight: 8"), []string{"--json"}, 0, []string{`"result": "applied"`}},
		{e2e.Single(ssp.URL(), "max_in_flight: many"), nil, 1, []string{ab.File + ":", "ssps[0].max_in_flight: many: must be a whole number"}},
		{e2e.Single(ssp.URL(), "max_in_flight: many"), []string{"--json"}, 1, []string{`"file": "` + ab.File}},
		{"log: {format: console}\n" + e2e.Single(ssp.URL()), nil, 1, []string{"log.format", "restart"}},
	} {
		ab.Write(c.text)
		stdout, stderr, code := e2e.Run(t, []string{"ADBUFFER_ADMIN=http://" + ab.AdminAddr}, append([]string{"reload"}, c.args...)...)
		// The file watcher may have been first. Then nothing has changed.
		watched := code == 0 && (strings.Contains(stdout, "unchanged"))
		if code != c.code || !watched && !hasLineWith(stdout+stderr, c.want) {
			t.Errorf("%q %v: exit status %d, want %d and %q:\n%s%s", c.text, c.args, code, c.code, c.want, stdout, stderr)
		}
	}
}
