package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/scenario"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

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

func TestRunLoadsASimulatedSSPAndPrintsJSON(t *testing.T) {
	path := writeScenario(t, `
name: direct
target: {ssp: a}
ssps: [{name: a, behaviour: {latency: {constant: 5ms}, response: {echo: true}}}]
load: {connections: 4, phases: [{for: 500ms, rate: 200/s}]}
requests: [{preset: rtb}]
expect: {echo: true}
`)
	code, out, errs := command(t, t.Context(), "run", path, "--json")
	testsupport.MustEqual(t, code, exitOK, "exit %d: %s", errs)
	var o scenario.Outcome
	testsupport.NoError(t, json.Unmarshal([]byte(out), &o))
	if o.Load.Whole.Answered != 100 || o.SSPs["a"].Requests != 100 ||
		o.SSPs["a"].Connections != o.Load.Connections.TCP || o.Proxy.RSS == 0 {
		t.Errorf("answered %d, SSP %+v, proxy %+v", o.Load.Whole.Answered, o.SSPs["a"], o.Proxy)
	}
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
load: {connections: 8, phases: [{name: well, for: 1s, rate: 50/s}, {name: ill, for: 1s, rate: 50/s}]}
changes: [{at: 1s, ssp: a, behaviour: {faults: {status: {share: 1}}}}]
`)
	code, out, errs := command(t, t.Context(), "run", path)
	testsupport.MustEqual(t, code, exitOK, "exit %d: %s", errs)
	for _, want := range []string{"error: status 503 ssp/a:", "NOT TO BE TRUSTED:",
		"of the requests failed, more than 1 %", "under test:", "SSP a: 1 TCP handshakes, 1 TLS handshakes"} {
		testsupport.True(t, strings.Contains(out, want), "no %q in:\n%s", want, out)
	}
}

func TestFaultyScenarioIsRefusedWithAllItsFaults(t *testing.T) {
	code, _, errs := command(t, t.Context(), "run", "internal/scenario/testdata/wrong-types.yaml")
	testsupport.Equal(t, code, exitFailed, "exit %d")
	for _, want := range []string{`field targets not found`, `"5000": must be a number with a unit`, "latency.p99: 20ms is below p50 80ms"} {
		testsupport.True(t, strings.Contains(errs, want), "no %q in:\n%s", want, errs)
	}
}

func TestTargetThatRefusesEndsWithTheReasonAndStatusOne(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	addr := ln.Addr().String()
	ln.Close()
	code, _, errs := command(t, t.Context(), "run",
		writeScenario(t, "target: {url: 'http://"+addr+"'}\nload: {phases: [{for: 1h, rate: 1/s}]}"))
	testsupport.True(t, code == exitFailed && strings.Contains(errs, addr+" refuses connections"), "exit %d, %q", code, errs)
}

func TestRemoteTargetIsRefusedWithoutLeave(t *testing.T) {
	for _, host := range []string{"192.0.2.1:80", "ads.example", "[2001:db8::1]:80"} {
		code, _, errs := command(t, t.Context(), "run",
			writeScenario(t, "target: {url: 'http://"+host+"'}\nload: {phases: [{for: 1s, rate: 1/s}]}"))
		testsupport.True(t, code == exitFailed && strings.Contains(errs, "--allow-remote"), "%s: exit %d, %q", host, code, errs)
	}
}

func TestInterruptStillPrintsResults(t *testing.T) {
	s, err := sspsim.Start(sspsim.Options{})
	testsupport.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		s.AwaitCounters(patience, func(c sspsim.Counters) bool { return c.Responded >= 50 })
		cancel()
	}()
	code, out, errs := command(t, ctx, "run", writeScenario(t,
		"target: {url: 'http://"+s.Addr()+"'}\nload: {phases: [{for: 1h, rate: 200/s}]}"))
	if code != exitOK || !strings.Contains(out, "NOT TO BE TRUSTED: the run was interrupted") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestWrongUseHasAStatusOfItsOwn(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"nosuch"}, {"field", "--scale", "0"}, {"field", "--only", "story"},
		{"peers", "--only", "apache"}, {"peers", "--rounds", "0"}, {"soak", "--requests", "0"},
		{"run", "scenarios/steady.yaml", "--scale", "0"}} {
		if code, _, errs := command(t, t.Context(), args...); code != exitUsage || errs == "" {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
}

// TestKeepAliveReportHolds repeats a field report.
func TestKeepAliveReportHolds(t *testing.T) {
	testsupport.Long(t)
	code, out, errs := command(t, t.Context(), "field", "--only", "keepalive", "--scale", "0.1", "--json")
	testsupport.MustEqual(t, code, exitOK, "exit %d\n%s%s", out, errs)
	var r results.Report
	testsupport.NoError(t, json.Unmarshal([]byte(out), &r))
	testsupport.MustTrue(t, len(r.Verdicts) == 1 && r.Verdicts[0].Held, "%+v", r.Verdicts)
	for _, row := range r.Tables[0].Rows {
		if c := row.Cells; !row.Theirs && c[1] == "adbuffer" && c[5] != "1" {
			t.Errorf("%s through adbuffer, %s: the SSP saw %s handshakes, want 1", c[0], c[2], c[5])
		}
		if c := row.Cells; !row.Theirs && c[2] == "close" && c[4] != "500" {
			t.Errorf("%s, %s: the client made %s handshakes, want 500", c[0], c[1], c[4])
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
