package reload

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestSIGHUPReadsTheFileAgain(t *testing.T) {
	t.Parallel()
	url := e2e.Healthy(t).URL()
	ab := e2e.Start(t, e2e.WithMaxConns(url, 10))
	ab.Signal(syscall.SIGHUP)
	ab.WantLogged(e2e.MsgAsked, "by=SIGHUP")
	ab.WantLogged(e2e.MsgReloaded, "changes=0")
	ab.WantMetric(1, "adbuffer_config_last_reload_successful")
	before := ab.Scrape().Series["adbuffer_config_info"].String()
	ab.Write(e2e.WithMaxConns(url, 20))
	ab.Signal(syscall.SIGHUP)
	awaitLimit(ab, 20)
	wantChange(ab, "ssps[openx].pool.max_conns", "10", "20", "in place")
	testsupport.True(t, ab.Scrape().Series["adbuffer_config_info"].String() != before, "the hash of the configuration is the same")
	ab.Get("/fillbuffer").WantFill("openx")
}

func TestAnInvalidFileChangesNothingAndEveryErrorIsNamed(t *testing.T) {
	t.Parallel()
	url := e2e.Healthy(t).URL()
	good := e2e.Single(url, "max_in_flight: 50")
	ab := e2e.Start(t, good)
	keys := func(m *e2e.Scrape) []string { return slices.Sorted(maps.Keys(m.Series)) }
	before := ab.Scrape()
	bad := `
server: {max_conections: 5, idle_timeout: 80}
ssps:
  - {name: openx, endpoints: ["ftp://x/"], headers: {set: [{name: "X Y", value: s3cret}]}}
  - {name: two, endpoints: ["http://127.0.0.1:1/"], pool: {max_conns: 0}, tls: {ca_file: /no/such/ca.pem}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [unknown]}
`
	paths := []string{"server.max_conections", "server.idle_timeout", "ssps[0].endpoints[0]", "ssps[0].headers.set[0].name", "ssps[1].pool.max_conns", "ssps[1].tls.ca_file", "routes[0].ssps[0].name"}
	ab.Write(bad)
	status, res := ab.Reload()
	testsupport.True(t, status == 422 && res.Result == "refused", "POST /reload responds with %d %+v", status, res)
	named := fmt.Sprint(res.Faults)
	for _, path := range paths {
		testsupport.True(t, strings.Contains(named, path), "%s is not among the errors in the response, %s", path, named)
		ab.WantLogged(e2e.MsgRefused, "fault="+path)
	}
	ab.WantMetric(0, "adbuffer_config_last_reload_successful")
	after := ab.Scrape()
	for _, name := range []string{"adbuffer_config_info", "adbuffer_config_last_reload_success_timestamp_seconds", "adbuffer_pool_connections_limit"} {
		testsupport.Equal(t, after.Series[name].String(), before.Series[name].String(), "%s")
	}
	if a, b := keys(after), keys(before); !slices.Equal(a, b) {
		t.Errorf("there were metrics %v, and there are %v", b, a)
	}
	if _, text := ab.AskAdmin("/config"); !strings.Contains(text, "max_in_flight: 50") {
		t.Error("/config does not show the current configuration")
	}
	ab.Get("/fillbuffer").WantFill("openx")
	testsupport.True(t, !strings.Contains(ab.Log.String(), "s3cret"), "the log has a secret")

	testsupport.NoError(t, os.Remove(ab.File))
	if status, res := ab.Reload(); status != 422 || !strings.Contains(res.Error, "no such file") {
		t.Errorf("without a file POST /reload responds with %d %+v", status, res)
	}
	ab.WantLogged(e2e.MsgRefused, "error=no such file")
	ab.Write(good)
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
	ab.Get("/fillbuffer").WantFill("openx")
}

func TestVariablesHoldAfterAReloadToo(t *testing.T) {
	t.Parallel()
	url := e2e.Healthy(t).URL()
	file := e2e.WriteConfig(t, e2e.WithMaxConns(url, 10))
	ab := e2e.Launch(t, append(e2e.Patient(), "ADBUFFER_CONFIG="+file, "ADBUFFER_SSPS_OPENX_MAX_IN_FLIGHT=7"), "serve")
	ab.File = file
	ab.AwaitReady()
	ab.Write(e2e.Single(url, "max_in_flight: 50", "pool: {max_conns: 20}"))
	awaitLimit(ab, 20)
	if _, text := ab.AskAdmin("/config"); !strings.Contains(text, "max_in_flight: 7\n") {
		t.Errorf("the variable no longer has an effect: %s", text)
	}
}

func TestSIGHUPDuringTheDrainIsIgnored(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	c.Send(e2e.Request("GET", "/fillbuffer", ""))
	e2e.AwaitInFlight(t, s.SSP, 1)
	ab.BeginDrain()
	ab.Signal(syscall.SIGHUP)
	ab.WantLogged("the configuration stays as it is while adbuffer drains", "by=SIGHUP")
	if status, res := ab.Reload(); status != 503 || res.Result != "draining" {
		t.Errorf("POST /reload responds with %d %+v", status, res)
	}
	s.Open()
	c.Read("GET").WantFill("openx")
	ab.WantExit(0)
}

// SIGHUP must not end the process, at any moment.
func TestSIGHUPBeforeTheFirstRequest(t *testing.T) {
	t.Parallel()
	file := e2e.WriteConfig(t, e2e.Single(e2e.Healthy(t).URL(), "pool: {min_idle: 4}"))
	ab := e2e.Launch(t, e2e.Patient(), "serve", "--config", file)
	for range 20 {
		ab.Signal(syscall.SIGHUP)
	}
	ab.AwaitReady()
	ab.Get("/fillbuffer").WantFill("openx")
	ab.WantLogged(e2e.MsgAsked, "by=SIGHUP")
}

// wantChange waits for the log line about a changed setting.
func wantChange(ab *e2e.Process, path, old, new, effect string) {
	ab.T.Helper()
	ab.WantLogged("configuration changed", "path="+path, "old="+old, "new="+new, "effect="+effect)
}

// awaitLimit waits until the pool of openx may open n connections.
func awaitLimit(ab *e2e.Process, n float64) {
	ab.T.Helper()
	ab.AwaitMetric(n, "adbuffer_pool_connections_limit", "ssp=openx")
}
