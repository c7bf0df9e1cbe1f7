package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"adbuffer/internal/sspsim"
)

// What the log says of a reload.
const (
	msgAsked    = "reading the configuration again"
	msgReloaded = "configuration reloaded"
	msgChanged  = "configuration changed"
	msgRefused  = "the configuration was not reloaded; the one before stays in force"
)

// reloadable is an adbuffer whose configuration the test changes.
type reloadable struct {
	*adbuffer
	file string
}

// startReloadable runs `adbuffer serve` with the configuration in a directory of
// its own, and waits until it is ready.
func startReloadable(t testing.TB, config string, env ...string) *reloadable {
	t.Helper()
	file := writeConfig(t, config)
	ab := launch(t, append(patient[:len(patient):len(patient)], env...), "serve", "--config", file)
	ab.awaitReady()
	return &reloadable{ab, file}
}

// write replaces the file by another, at once.
func (r *reloadable) write(config string) {
	r.t.Helper()
	if err := os.WriteFile(r.file+".new", []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		r.t.Fatal(err)
	}
}

// overwrite replaces the file's content in place: it is empty for a moment.
func (r *reloadable) overwrite(config string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// reloaded is what POST /reload answers.
type reloaded struct {
	Result  string
	Hash    string
	Changes []struct{ Path, Old, New, Effect string }
	Faults  []struct{ Path, Value, Rule string }
	Error   string
}

func (r *reloaded) faultPaths() (paths []string) {
	for _, f := range r.Faults {
		paths = append(paths, f.Path)
	}
	return paths
}

// post asks the admin listener to reload.
func (r *reloadable) post() (status int, res *reloaded) {
	r.t.Helper()
	status, body := r.send("POST", "/reload", "")
	res = new(reloaded)
	if err := json.Unmarshal([]byte(body), res); err != nil {
		r.t.Fatalf("POST /reload answers %d %s: %v", status, body, err)
	}
	return status, res
}

// take writes a configuration, which must be taken over: by the file's watcher
// if that is quicker, else by POST /reload.
func (r *reloadable) take(config string) {
	r.t.Helper()
	r.write(config)
	if status, res := r.post(); status != 200 || res.Result != "applied" && res.Result != "unchanged" {
		r.t.Fatalf("POST /reload answers %d %+v", status, res)
	}
}

// lines returns the fields of all lines with this message.
func (l *logBuffer) lines(message string) (all []map[string]any) {
	for text := range strings.Lines(l.String()) {
		var f map[string]any
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &f) == nil && f["msg"] == message {
			all = append(all, f)
		}
	}
	return all
}

// wantLogged waits for a line with this message and these fields, name=value.
func (r *reloadable) wantLogged(message string, fields ...string) {
	r.t.Helper()
	eventually(r.t, sprintf("the log has %q with %v", message, fields), func() bool {
		return slices.ContainsFunc(r.log.lines(message), func(line map[string]any) bool {
			return !slices.ContainsFunc(fields, func(f string) bool {
				name, value, _ := strings.Cut(f, "=")
				return !strings.Contains(fmt.Sprint(line[name]), value)
			})
		})
	})
}

// wantChange waits for the log to say that a setting changed, and how.
func (r *reloadable) wantChange(path, old, new, effect string) {
	r.t.Helper()
	r.wantLogged(msgChanged, "path="+path, "old="+old, "new="+new, "effect="+effect)
}

func (r *reloadable) awaitLimit(n float64) {
	r.t.Helper()
	r.awaitMetric(n, "adbuffer_pool_connections_limit", "ssp=openx")
}

func conns(url string, n int) string { return single(url, sprintf("pool: {max_conns: %d}", n)) }

func TestSIGHUPReadsTheFileAgain(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	ab := startReloadable(t, conns(url, 10))
	ab.signal(syscall.SIGHUP)
	ab.wantLogged(msgAsked, "by=SIGHUP")
	ab.wantLogged(msgReloaded, "changes=0")
	ab.wantMetric(1, "adbuffer_config_last_reload_successful")
	before := ab.scrape().all("adbuffer_config_info")[0].labels
	ab.write(conns(url, 20))
	ab.signal(syscall.SIGHUP)
	ab.awaitLimit(20)
	ab.wantChange("ssps[openx].pool.max_conns", "10", "20", "in place")
	if ab.scrape().all("adbuffer_config_info")[0].labels == before {
		t.Error("the hash of the configuration is the same")
	}
	ab.get("/fillbuffer").wantFill("openx")
}

func TestAReloadIsAnsweredWithChangesAndTheirEffect(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	ab := startReloadable(t, conns(url, 10))
	status, res := ab.post()
	if status != 200 || res.Result != "unchanged" || res.Hash == "" || len(res.Changes) != 0 {
		t.Errorf("an unchanged file: %d %+v", status, res)
	}
	for n := 20; ; n++ { // until we are quicker than who watches the file
		ab.write(conns(url, n))
		if status, res = ab.post(); res.Result != "unchanged" {
			break
		}
	}
	if status != 200 || res.Result != "applied" || len(res.Changes) == 0 || len(res.Faults) != 0 {
		t.Fatalf("%d %+v", status, res)
	}
	if c := res.Changes[0]; c.Path != "ssps[openx].pool.max_conns" || c.Effect != "in place" || c.New < "20" {
		t.Errorf("%+v", c)
	}
	if status, _ := ab.send("POST", "/reload", "", "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a page of another origin is answered %d", status)
	}
	if status, _ := ab.send("POST", "/reload", "ssps: []"); status != 400 {
		t.Errorf("a body is answered %d", status)
	}
}

func TestManyMayAskAtOnce(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	ab := startReloadable(t, conns(url, 10))
	var wg sync.WaitGroup
	for i := range 30 {
		ab.overwrite(conns(url, 11+i))
		ab.signal(syscall.SIGHUP)
		wg.Go(func() {
			if status, res := ab.post(); status != 200 && status != 422 { // 422: the file is just being written
				t.Errorf("%d %+v", status, res)
			}
		})
	}
	wg.Wait()
	ab.take(conns(url, 99))
	ab.awaitLimit(99)
	ab.wantMetric(1, "adbuffer_config_last_reload_successful")
}

func TestABadFileChangesNothingAndEveryFaultIsNamed(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	good := single(url, "max_in_flight: 50")
	ab := startReloadable(t, good)
	keys := func(m *scrape) []string { return slices.Sorted(maps.Keys(m.series)) }
	before := ab.scrape()
	bad := `
server: {max_conections: 5, read_timeout: 80}
ssps:
  - {name: openx, endpoints: ["ftp://x/"], headers: {set: [{name: "X Y", value: s3cret}]}}
  - {name: two, endpoints: ["http://127.0.0.1:1/"], pool: {max_conns: 0}, tls: {ca_file: /no/such/ca.pem}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [nobody]}
`
	paths := []string{"server.max_conections", "server.read_timeout", "ssps[0].endpoints[0]", "ssps[0].headers.set[0].name", "ssps[1].pool.max_conns", "ssps[1].tls.ca_file", "routes[0].ssps[0].name"}
	ab.write(bad)
	status, res := ab.post()
	if status != 422 || res.Result != "refused" {
		t.Errorf("POST /reload answers %d %+v", status, res)
	}
	for _, path := range paths {
		if !slices.Contains(res.faultPaths(), path) {
			t.Errorf("%s is not among the faults that are answered, %v", path, res.faultPaths())
		}
		ab.wantLogged(msgRefused, "fault="+path)
	}
	ab.wantMetric(0, "adbuffer_config_last_reload_successful")
	after := ab.scrape()
	for _, name := range []string{"adbuffer_config_info", "adbuffer_config_last_reload_timestamp_seconds", "adbuffer_pool_connections_limit"} {
		if a, b := after.series[name], before.series[name]; !slices.Equal(a, b) {
			t.Errorf("%s was %v and is %v", name, b, a)
		}
	}
	if a, b := keys(after), keys(before); !slices.Equal(a, b) {
		t.Errorf("there were metrics %v, and there are %v", b, a)
	}
	if _, text := ab.ask("/config"); !strings.Contains(text, "max_in_flight: 50") {
		t.Error("/config does not show what is in force")
	}
	ab.get("/fillbuffer").wantFill("openx")
	if strings.Contains(ab.log.String(), "s3cret") {
		t.Error("the log has a secret")
	}

	if err := os.Remove(ab.file); err != nil {
		t.Fatal(err)
	}
	if status, res := ab.post(); status != 422 || !strings.Contains(res.Error, "no such file") {
		t.Errorf("without a file POST /reload answers %d %+v", status, res)
	}
	ab.wantLogged(msgRefused, "error=no such file")
	ab.write(good)
	ab.awaitMetric(1, "adbuffer_config_last_reload_successful")
	ab.get("/fillbuffer").wantFill("openx")
}

func TestAChangeOfListenIsRefusedAndSaysToRestart(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	config := func(listen string, n int) string {
		return sprintf("server: {listen: %q, drain: {delay: 0s}}\nadmin: {listen: \"127.0.0.1:0\"}\n", listen) + conns(url, n)
	}
	file := writeConfig(t, config("127.0.0.1:0", 10))
	ab := &reloadable{launch(t, []string{"GORACE=exitcode=66"}, "serve", "--config", file), file}
	ab.awaitReady()
	ab.write(config("127.0.0.1:1", 20))
	status, res := ab.post()
	if status != 422 || res.Result != "refused" || !slices.Contains(res.faultPaths(), "server.listen") {
		t.Fatalf("POST /reload answers %d %+v", status, res)
	}
	if rule := res.Faults[0].Rule; !strings.Contains(rule, "restart") {
		t.Errorf("the fault does not say to restart: %s", rule)
	}
	ab.wantLogged(msgRefused, "fault=server.listen", "fault=restart")
	ab.wantMetric(0, "adbuffer_config_last_reload_successful")
	ab.wantMetric(10, "adbuffer_pool_connections_limit", "ssp=openx") // nothing else was taken over
	ab.write(config("127.0.0.1:0", 20))
	ab.awaitLimit(20)
	ab.wantMetric(1, "adbuffer_config_last_reload_successful")
}

func TestVariablesHoldAfterAReloadToo(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	file := writeConfig(t, conns(url, 10))
	ab := &reloadable{launch(t, append(patient[:len(patient):len(patient)], "ADBUFFER_CONFIG="+file, "ADBUFFER_SSPS_0_MAX_IN_FLIGHT=7"), "serve"), file}
	ab.awaitReady()
	ab.write(single(url, "max_in_flight: 50", "pool: {max_conns: 20}"))
	ab.awaitLimit(20)
	if _, text := ab.ask("/config"); !strings.Contains(text, "max_in_flight: 7\n") {
		t.Errorf("the variable does not hold any more: %s", text)
	}
}

func TestAHangUpDuringTheDrainIsIgnored(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := startReloadable(t, single(s.URL()))
	c := ab.dial()
	c.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	ab.signal(syscall.SIGTERM)
	eventually(t, "it drains", func() bool { _, ok := ab.log.line("draining"); return ok })
	ab.signal(syscall.SIGHUP)
	ab.wantLogged("the configuration stays as it is while adbuffer drains", "by=SIGHUP")
	if status, res := ab.post(); status != 503 || res.Result != "draining" {
		t.Errorf("POST /reload answers %d %+v", status, res)
	}
	s.open()
	c.read("GET").wantFill("openx")
	ab.wantExit(0)
}

// A hang-up must not end the process, however early it comes.
func TestAHangUpBeforeTheFirstRequestIsHarmless(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, single(healthy(t).URL(), "pool: {min_idle: 4}"))
	ab := launch(t, patient, "serve", "--config", file)
	for range 20 {
		ab.signal(syscall.SIGHUP)
	}
	ab.awaitReady()
	ab.get("/fillbuffer").wantFill("openx")
	(&reloadable{ab, filepath.Clean(file)}).wantLogged(msgAsked, "by=SIGHUP")
}
