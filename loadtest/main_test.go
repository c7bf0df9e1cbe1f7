package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/rig"
)

func TestMain(m *testing.M) {
	rig.ChildMain()
	os.Exit(m.Run())
}

// command runs a command line and returns its exit code and what it printed.
func command(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	var files [2]*os.File
	for i, name := range []string{"stdout", "stderr"} {
		f, err := os.Create(filepath.Join(dir, name))
		testsupport.NoError(t, err)
		defer f.Close()
		files[i] = f
	}
	code = run(ctx, args, files[0], files[1])
	out, err := os.ReadFile(files[0].Name())
	testsupport.NoError(t, err)
	errs, err := os.ReadFile(files[1].Name())
	testsupport.NoError(t, err)
	return code, string(out), string(errs)
}

func writeScenario(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.yaml")
	testsupport.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRunLoadsAServer(t *testing.T) {
	ssp, err := sspsim.Start(sspsim.Options{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond), Response: sspsim.Response{Echo: true}}})
	testsupport.NoError(t, err)
	defer ssp.Close()
	path := writeScenario(t, fmt.Sprintf(`
name: direct
target: {url: 'http://%s', pid: %d}
load: {connections: 4, phases: [{for: 1s, per_second: 200}]}
requests: [{preset: rtb}]
expect: {echo: true}
`, ssp.Addr(), os.Getpid()))
	code, out, errs := command(t, t.Context(), "run", path, "--scale", "0.5", "--json")
	testsupport.MustEqual(t, code, 0, "exit %d: %s", errs)
	var report struct {
		Title  string
		Tables []struct{ Title string }
		Notes  []string
	}
	testsupport.NoError(t, json.Unmarshal([]byte(out), &report))
	notes := strings.Join(report.Notes, "\n")
	testsupport.True(t, report.Title == "direct" && len(report.Tables) > 0 && strings.Contains(notes, "Of the requests none failed, over 4 connections") &&
		strings.Contains(notes, "The process under test used"), "the report is %+v", report)
	testsupport.Equal(t, ssp.Counters().Responded, 100, "the server sent %d responses, want 100")
}

func TestRunStartsAdbufferInFrontOfSSPsAndChangesThem(t *testing.T) {
	testsupport.Long(t)
	path := writeScenario(t, `
name: outage
adbuffer:
  config: |
    server: {listen: "127.0.0.1:0"}
    admin: {listen: "127.0.0.1:0"}
    ssps:
      - {name: a, endpoints: ['{{url "a"}}'], protocol: http2, tls: {ca_file: '{{ca "a"}}'}, breaker: {enabled: false}}
    routes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]
ssps: [{name: a, protocol: tls-h2}]
load: {connections: 8, phases: [{name: well, for: 1s, per_second: 50}, {name: ill, for: 1s, per_second: 50}]}
changes: [{at: 1s, ssp: a, behaviour: {faults: {status: {share: 1}}}}]
`)
	code, out, errs := command(t, t.Context(), "run", path)
	testsupport.MustEqual(t, code, 0, "exit %d: %s", errs)
	for _, want := range []string{"failed (503 ssp/a: ", "**not to be trusted**", "of the requests failed, more than 1 %",
		"The process under test used"} {
		testsupport.True(t, strings.Contains(out, want), "no %q in:\n%s", want, out)
	}
}

func TestFaultyScenarioIsRefusedWithAllItsFaults(t *testing.T) {
	code, _, errs := command(t, t.Context(), "run", "internal/scenario/testdata/wrong-types.yaml")
	testsupport.Equal(t, code, 1, "exit %d")
	for _, want := range []string{`field targets not found`, "cannot unmarshal !!str `5000/s` into float64", "latency.p99: 20ms is below p50 80ms"} {
		testsupport.True(t, strings.Contains(errs, want), "no %q in:\n%s", want, errs)
	}
}

func TestRemoteTargetIsRefusedWithoutLeave(t *testing.T) {
	for _, host := range []string{"192.0.2.1:80", "ads.example:80", "[2001:db8::1]:80"} {
		code, _, errs := command(t, t.Context(), "run",
			writeScenario(t, "target: {url: 'http://"+host+"'}\nload: {phases: [{for: 1s, per_second: 1}]}"))
		testsupport.True(t, code == 1 && strings.Contains(errs, "--allow-remote"), "%s: exit %d, %q", host, code, errs)
	}
}

func TestWrongUseIsRefused(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"nosuch"}, {"field", "--scale", "0"}, {"field", "--only", "story"},
		{"peers", "--only", "apache"}, {"peers", "--rounds", "0"}, {"soak", "--requests", "0"},
		{"run", "scenarios/steady.yaml", "--scale", "0"}} {
		if code, _, errs := command(t, t.Context(), args...); code != 1 || errs == "" {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
}

// Every command is there and has a description.
func TestEveryCommandIsThere(t *testing.T) {
	want := []string{"run", "peers", "field", "chaos", "soak", "overload", "sizing", "traffic"}
	root := newRoot(os.Stdout, os.Stderr)
	for _, name := range want {
		cmd, _, err := root.Find([]string{name})
		testsupport.True(t, err == nil && cmd != root && cmd.Short != "" && cmd.Long != "", "%s: no such command, or no description", name)
	}
	testsupport.Equal(t, len(root.Commands()), len(want), "%d commands")
}
