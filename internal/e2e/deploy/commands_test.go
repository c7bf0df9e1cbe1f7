package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

func TestServeWithoutAConfigurationSaysSoAndPointsToTheDemo(t *testing.T) {
	t.Parallel()
	_, stderr, code := e2e.Run(t, []string{"ADBUFFER_CONFIG="}, "serve")
	if code != 2 || !strings.Contains(stderr, "--config") || !strings.Contains(stderr, "ADBUFFER_CONFIG") || !strings.Contains(stderr, "adbuffer demo") {
		t.Errorf("exit status %d, want 2: %s", code, stderr)
	}
}

func TestTheConfigurationMayBeNamedByAVariable(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Launch(t, append(e2e.Patient(), "ADBUFFER_CONFIG="+e2e.WriteConfig(t, e2e.Single(s.URL()))), "serve")
	ab.AwaitReady()
	ab.Get("/fillbuffer").WantFill("openx")
}

func TestServeRefusesAConfigurationWithErrors(t *testing.T) {
	t.Parallel()
	file := e2e.WriteConfig(t, strings.Replace(e2e.Single("http://127.0.0.1:1/bid"), "ssps:", "ssp:", 1))
	_, stderr, code := e2e.Run(t, nil, "serve", "--config", file)
	if code != 1 || !strings.Contains(stderr, "ssps") {
		t.Errorf("exit status %d, want 1: %s", code, stderr)
	}
	_, stderr, code = e2e.Run(t, nil, "serve", "--config", filepath.Join(t.TempDir(), "none.yaml"))
	if code != 1 || !strings.Contains(stderr, "none.yaml") {
		t.Errorf("a missing file: exit status %d, want 1: %s", code, stderr)
	}
}

func TestServeNamesTheListenerThatCannotOpen(t *testing.T) {
	t.Parallel()
	taken := e2e.Healthy(t)
	file := e2e.WriteConfig(t, e2e.Single(taken.URL()))
	for name, setting := range map[string]string{"ADBUFFER_SERVER_LISTEN": "server.listen", "ADBUFFER_ADMIN_LISTEN": "admin.listen"} {
		_, stderr, code := e2e.Run(t, append(e2e.Patient(), name+"="+taken.Addr()), "serve", "--config", file)
		if code != 1 || !strings.Contains(stderr, setting) || !strings.Contains(stderr, taken.Addr()) {
			t.Errorf("%s is taken: exit status %d, want 1: %s", setting, code, stderr)
		}
	}
}

func TestCheckPrintsTheEffectiveConfiguration(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := e2e.Run(t, nil, "check", "--config", "../../../config/adbuffer.yaml")
	if code != 0 || stderr != "" || !strings.Contains(stdout, "max_conns: 256") || !strings.Contains(stdout, "is valid (SSPs: 2, routes: 2") {
		t.Errorf("exit status %d, want 0: %s%s", code, stdout, stderr)
	}
	stdout, _, code = e2e.Run(t, nil, "check", "--config", "../../../config/minimal.yaml", "--quiet")
	if code != 0 || strings.Contains(stdout, "idle_timeout:") || !strings.Contains(stdout, "is valid (SSPs: 1, routes: 1") {
		t.Errorf("--quiet: exit status %d, want 0: %s", code, stdout)
	}
}

func TestCheckReportsAllErrorsAtOnceAndExitsWith1(t *testing.T) {
	t.Parallel()
	file := e2e.WriteConfig(t, `
server: {listen: "127.0.0.1:8080", max_conections: 5, read_timeout: 80}
ssps:
  - {name: openx, endpoints: ["ftp://x/"]}
  - {name: openx, endpoints: ["http://127.0.0.1:1/"], pool: {max_conns: 0}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [unknown]}
`)
	paths := []string{"server.max_conections", "server.read_timeout", "ssps[0].endpoints[0]", "ssps[1].name", "ssps[1].pool.max_conns", "routes[0].ssps[0].name"}
	_, stderr, code := e2e.Run(t, nil, "check", "--config", file)
	if code != 1 {
		t.Errorf("exit status %d, want 1", code)
	}
	for _, path := range append(paths, "max_connections") { // the nearest known key
		if !strings.Contains(stderr, path) {
			t.Errorf("%s is not among the errors:\n%s", path, stderr)
		}
	}
	stdout, _, code := e2e.Run(t, nil, "check", "--config", file, "--json")
	var res struct {
		Valid  bool `json:"valid"`
		Faults []struct {
			Path string `json:"path"`
		} `json:"faults"`
		Warnings []any `json:"warnings"`
	}
	if err := json.Unmarshal([]byte(stdout), &res); err != nil || code != 1 || res.Valid || res.Warnings == nil {
		t.Fatalf("--json: exit status %d, %v: %s", code, err, stdout)
	}
	got := map[string]bool{}
	for _, f := range res.Faults {
		got[f.Path] = true
	}
	for _, path := range paths {
		if !got[path] {
			t.Errorf("--json: %s is not among the errors: %s", path, stdout)
		}
	}
}

func TestCheckAsJSONOfAValidConfiguration(t *testing.T) {
	t.Parallel()
	stdout, _, code := e2e.Run(t, nil, "check", "--config", "../../../config/adbuffer.yaml", "--json")
	var res struct {
		Valid  bool   `json:"valid"`
		Hash   string `json:"hash"`
		Faults []any  `json:"faults"`
	}
	if err := json.Unmarshal([]byte(stdout), &res); err != nil || code != 0 || !res.Valid || res.Hash == "" || res.Faults == nil || len(res.Faults) > 0 {
		t.Errorf("exit status %d, %v: %s", code, err, stdout)
	}
}

func TestWrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check"}, {"serve", "--colour"}, {"check", "--config", "x", "y"}, {"fill"}, {"demo", "now"}, {"version", "--config", "x"}} {
		_, stderr, code := e2e.Run(t, []string{"ADBUFFER_CONFIG="}, args...)
		if code != 2 || stderr == "" {
			t.Errorf("adbuffer %s: exit status %d, want 2: %s", strings.Join(args, " "), code, stderr)
		}
	}
}

func TestVersionNamesVersionCommitAndGo(t *testing.T) {
	t.Parallel()
	stdout, _, code := e2e.Run(t, nil, "version")
	if code != 0 || !strings.HasPrefix(stdout, "adbuffer v0.0.0-test (commit ") || !strings.Contains(stdout, ", go1.") {
		t.Errorf("exit status %d: %s", code, stdout)
	}
	stdout, _, code = e2e.Run(t, nil, "version", "--json")
	var res map[string]string
	if err := json.Unmarshal([]byte(stdout), &res); err != nil || code != 0 || res["version"] != "v0.0.0-test" || res["go"] == "" {
		t.Errorf("--json: exit status %d, %v: %s", code, err, stdout)
	}
}

func TestTheDemoShowsEveryModeAndExits(t *testing.T) {
	t.Parallel()
	wants := []string{
		"single", "split", "waterfall", "parallel-first", "parallel-all", "no_ad",
		"ssp/alpha", "ssp/beta", "proxy/deadline", "proxy/merged", "ssp/broken", `"seatbid"`, "<VAST version=",
	}
	// The demo's SSPs miss its deadline if the machine pauses. Then the demo runs again.
	testsupport.Eventually(t, "the demo shows every mode", func() bool {
		stdout, stderr, code := e2e.Run(t, nil, "demo", "--once")
		if code != 0 || strings.Contains(stderr, "DATA RACE") || strings.Contains(stderr, "panic") {
			t.Fatalf("exit status %d, want 0: %s%s", code, stdout, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(stdout, want) {
				t.Logf("the demo does not show %q:\n%s", want, stdout)
				return false
			}
		}
		return true
	})
}

func TestTheDemoNamesItsPageAndKeepsItLive(t *testing.T) {
	for _, row := range []struct {
		args  []string
		moves bool
	}{{[]string{"demo"}, true}, {[]string{"demo", "--quiet"}, false}} {
		out := new(testsupport.LogBuffer)
		cmd := exec.Command(e2e.Binary(t), row.args...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		testsupport.Eventually(t, "the demo suggests the next steps", func() bool { return strings.Contains(out.String(), "Then write a configuration") })
		page, _, _ := strings.Cut(out.String(), "\n")
		url, found := strings.CutPrefix(page, "The admin page: http://")
		if !found {
			t.Fatalf("%v begins with %q, want the URL of the page", row.args, page)
		}
		ab := &e2e.Process{T: t, AdminAddr: strings.TrimSuffix(url, "/")}
		if !row.moves {
			ab.AwaitMetric(0, "adbuffer_in_flight_requests") // the requests that were shown are counted
		}
		before := ab.Scrape().Sum("adbuffer_requests_total")
		if row.moves {
			testsupport.Eventually(t, "requests continue", func() bool { return ab.Scrape().Sum("adbuffer_requests_total") > before+20 })
		} else if time.Sleep(500 * time.Millisecond); ab.Scrape().Sum("adbuffer_requests_total") != before {
			t.Errorf("%v sends a load", row.args)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", row.args, err, out)
		}
	}
}
