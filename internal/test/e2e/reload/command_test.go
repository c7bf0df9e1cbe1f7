package reload

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestTheReloadCommandSetsALimitForTheChangeOfTheTraffic(t *testing.T) {
	t.Parallel()
	ssp := e2e.Healthy(t)
	const guard = "admin: {sample: {requests: 6000, max_change: 0.1}}\n"
	ab := e2e.Start(t, guard+e2e.Single(ssp.URL()))
	admin := []string{"ADBUFFER_ADMIN=http://" + ab.AdminAddr}
	for range 5 {
		ab.Get("/fillbuffer")
	}
	ab.AwaitMetric(5, "adbuffer_sample_requests")
	ab.Write(guard + strings.Replace(e2e.Single(ssp.URL()), "path: /fillbuffer", "path: /other", 1)) // route default gets nothing
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--max-change", "10%"}, 2, []string{"--max-change needs --traffic"}},
		{[]string{"--traffic", "--max-change", "10"}, 2, []string{"must be a share such as 10%, or any"}},
		{nil, 1, []string{"nothing changed:", "ssp openx: ", "more than the 10 % that admin.sample.max_change allows; adbuffer reload --traffic --max-change any applies"}},
		{[]string{"--traffic"}, 1, []string{"TRAFFIC", "route none", "nothing changed:", "more than the 10 % that admin.sample.max_change allows"}},
		{[]string{"--traffic", "--max-change", "30%"}, 1, []string{"TRAFFIC", "nothing changed:", "more than the 30 % that --max-change allows"}},
		{[]string{"--traffic", "--max-change", "30%", "--json"}, 1, []string{`"result": "refused"`, `"routes": [`, `"exceeded": [`}},
		{[]string{"--traffic", "--max-change", "any"}, 0, []string{"TRAFFIC", "configuration applied, changes: 1"}},
		{nil, 0, []string{"configuration unchanged"}},
	} {
		stdout, stderr, code := e2e.Run(t, admin, append([]string{"reload"}, c.args...)...)
		text := strings.ReplaceAll(stdout+stderr, "\n", " ")
		testsupport.True(t, code == c.code && hasLineWith(text, c.want), "%v: exit status %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, stdout, stderr)
	}
	ab.Write(guard + e2e.Single(ssp.URL(), "max_in_flight: 7")) // not the configuration before, which could come back
	for maxChange, want := range map[string]int{"10%": 1, "any": 0, "": 1} {
		args := []string{"check", ab.File, "--traffic"}
		if maxChange != "" {
			args = append(args, "--max-change", maxChange)
		}
		stdout, stderr, code := e2e.Run(t, admin, args...)
		testsupport.Equal(t, code, want, fmt.Sprint(args, " says ", stdout, stderr, " with the exit status %d"))
	}
	ab.SendAdmin("PUT", "/sample", `{"state":"cleared"}`)
}

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
