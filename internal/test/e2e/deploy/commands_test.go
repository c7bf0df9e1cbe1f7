package deploy

import (
	"os"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

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

func TestTheDemoShowsEveryModeAndExits(t *testing.T) {
	t.Parallel()
	wants := []string{
		"single", "split", "waterfall", "parallel-first", "parallel-all", "no_ad",
		"ssp/alpha", "ssp/beta", "proxy/deadline", "proxy/merged", "ssp/broken", `"seatbid"`, "<VAST version=", `"seatnonbid":[{"seat":"broken"`,
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
		demo := testsupport.Launch(t, e2e.Command(t, nil, row.args...), func(d *testsupport.Daemon) bool {
			return strings.Contains(d.Log.String(), "Then write a configuration") // after the steps that it suggests
		})
		page, _, _ := strings.Cut(demo.Log.String(), "\n")
		url, found := strings.CutPrefix(page, "The admin page: http://")
		testsupport.MustTrue(t, found, "%v begins with %q, want the URL of the page", row.args, page)
		ab := &e2e.Process{Daemon: demo, AdminAddr: strings.TrimSuffix(url, "/")}
		if !row.moves {
			ab.AwaitMetric(0, "adbuffer_in_flight_requests") // the requests that were shown are counted
		}
		before := ab.Scrape().Sum("adbuffer_requests_total")
		if row.moves {
			testsupport.Eventually(t, "requests continue", func() bool { return ab.Scrape().Sum("adbuffer_requests_total") > before+20 })
		} else if time.Sleep(500 * time.Millisecond); ab.Scrape().Sum("adbuffer_requests_total") != before {
			t.Errorf("%v sends a load", row.args)
		}
		ab.Signal(os.Interrupt)
		ab.WantExit(0)
	}
}
