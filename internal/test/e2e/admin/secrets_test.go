package admin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A configuration can have secrets in many places. Only check --show-secrets may print them.
func TestNoSecretIsShownAnywhere(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Record: 100})
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		testsupport.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	token := file("token", "s3cret-admin-token-of-many-bytes\n")
	config := func(version string) string {
		return fmt.Sprintf(`
log: {level: debug, access: {enabled: true, sample: 1}}
admin: {capture: true, token_file: %[3]q, sample: {requests: 1000}}
tracing: {endpoint: "http://127.0.0.1:1/v1/traces", sample: 1}
ssps:
  - name: openx
    endpoints: ["http://%[1]s/bid?v=s3cret-value-%[2]s&s3cret-alone-%[2]s&id=s3cret-base64=="]
    headers: {set: [{name: Authorization, value: "Bearer s3cret-header-%[2]s"}, {name: X-Partner, value: "s3cret-partner-%[2]s"}, {name: X-Openrtb-Version, value: "2.6"}]}
  - {name: dead, endpoints: ["http://127.0.0.1:1/bid?key=s3cret-dead"]}
  - {name: untrusted, endpoints: ["https://%[1]s/bid?key=s3cret-tls"]}
routes:
  - name: keyed
    match: {path: /keyed, header: [{name: X-Api-Key, value: s3cret-condition}], query: [{name: token, value: s3cret-condition}]}
    ssps: [openx]
  - {name: all, match: {path: /all}, mode: parallel-all, ssps: [openx, dead, untrusted]}
  - {name: default, match: {path: "/fillbuffer"}, ssps: [openx, dead, untrusted], client_choice: true}
`, s.Addr(), version, token)
	}
	ab := e2e.Start(t, config("1"), "ADBUFFER_SSPS_OPENX_HEADERS_SET_X_PARTNER_VALUE=s3cret-variable")
	outputs := map[string]string{}
	run := func(args ...string) {
		stdout, stderr, _ := e2e.Run(t, ab.Cmd.Env, args...)
		outputs[strings.Join(args, " ")] = stdout + stderr
	}

	// This is traffic of each kind, with a capture and adbuffer tail.
	live := follow(t, ab)
	c := ab.Dial()
	testsupport.Eventually(t, "tail follows", func() bool {
		c.Get("/fillbuffer").WantFill("openx")
		return len(live) > 0
	})
	captured := make(chan string)
	go func() {
		_, body := ab.SendAdmin("GET", "/capture?ssp=openx&n=3&wait=30s", "")
		captured <- body
	}()
	testsupport.Eventually(t, "the capture runs and has its requests", func() bool {
		c.Get("/fillbuffer?slot=top&api_key=s3cret-of-the-client").WantFill("openx")
		select {
		case outputs["/capture"] = <-captured:
			return true
		case <-time.After(20 * time.Millisecond):
			return false
		}
	})
	if got := outputs["/capture"]; !strings.Contains(got, "slot=top") || !strings.Contains(got, "(hidden)") || !strings.Contains(got, `"2.6"`) {
		t.Errorf("the capture hides too much, or nothing: %s", got)
	}
	c.Get("/fillbuffer?token=s3cret-of-the-client", "Cookie: uid=s3cret-of-the-client", "Authorization: Bearer s3cret-of-the-client").WantFill("openx")
	for _, path := range []string{"/fillbuffer/dead", "/fillbuffer/untrusted", "/all", "/keyed?token=x", "/nowhere"} {
		res := c.Get(path)
		outputs[path] = fmt.Sprint(res.Fields, res.Body)
	}
	ask := func() {
		for _, path := range []string{"/", "/config", "/overview", "/pools", "/history", "/metrics", "/readyz", "/healthz", "/log/level", "/failures", "/reload", "/ssps", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol?0x1", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=1"} {
			_, outputs[path] = ab.AskAdmin(path)
		}
	}
	ask()
	if got := outputs["/config"]; !strings.Contains(got, "/bid?v=(hidden)&(hidden)&id=(hidden)") || strings.Count(got, "(hidden)") < 9 {
		t.Errorf("/config hides too much, or too little: %s", got)
	}

	next := e2e.WriteConfig(t, config("2"))
	admin := "http://" + ab.AdminAddr
	run("check", "--config", next)
	run("check", "--config", next, "--quiet")
	run("check", "--config", next, "--json")
	run("check", "--config", next, "--admin", admin, "--token-file", token)
	run("check", "--config", next, "--admin", admin, "--token-file", token, "--json")
	run("check", "--config", ab.File, "--admin", admin)
	traffic := []string{"check", "--config", next, "--admin", admin, "--token-file", token, "--traffic", "--json"}
	run(traffic...)
	if got := outputs[strings.Join(traffic, " ")]; !strings.Contains(got, `"traffic"`) || !strings.Contains(got, `"route": "default"`) {
		t.Errorf("check --traffic shows no traffic: %s", got)
	}
	if got := outputs["check --config "+next+" --admin "+admin+" --token-file "+token]; !strings.Contains(got, "but another secret") {
		t.Errorf("check --admin does not report that secrets have changed: %s", got)
	}
	faulty := e2e.WriteConfig(t, strings.NewReplacer("http://127.0.0.1:1/bid", "htp://u:s3cret-user@127.0.0.1:1/bid", "X-Partner,", `"X-Partner: s3cret-name",`, "/v1/traces", "/v1/traces?token=s3cret-tracing").Replace(config("3")))
	run("check", "--config", faulty)
	run("check", "--config", faulty, "--json")
	run("check", "--config", faulty, "--show-secrets")
	run("serve", "--config", faulty)
	run("plan", "--admin", admin, "--token-file", token)
	bundle := filepath.Join(t.TempDir(), "bundle.zip")
	run("bundle", "--admin", admin, "--token-file", token, "--seconds", "1", "--out", bundle)
	parts := testsupport.ReadZip(t, bundle)
	for name, content := range parts {
		outputs["the bundle's "+name] = content
	}
	for name, want := range map[string]string{
		"config.yaml": "openx", "pools.json": "config_hash", "ssps.json": "openx", "history.json": "step_seconds", "failures.json": "failures",
		"metrics.txt": "adbuffer_requests_total", "goroutines.txt": "goroutine ", "heap.pprof": "\x1f\x8b", "cpu.pprof": "\x1f\x8b", "trace.out": "go 1.",
	} {
		testsupport.True(t, strings.Contains(parts[name], want), "the bundle's %s has no %q: %.200q", name, want, parts[name])
	}
	run("explain", "--config", next, "/all")
	run("explain", "--admin", admin, "--token-file", token, "--json", "/all")
	if got := outputs["explain --config "+next+" /all"]; !strings.Contains(got, "(hidden)") || !strings.Contains(got, "untrusted") {
		t.Errorf("explain hides nothing, or does not show all SSPs: %s", got)
	}
	testsupport.Eventually(t, "tail shows the last request", func() bool {
		ab.Get("/nowhere")
		for len(live) > 0 {
			outputs["tail"] += <-live + "\n"
		}
		return strings.Contains(outputs["tail"], "/nowhere")
	})
	if got := outputs["check --config "+faulty]; strings.Count(got, "(hidden)") < 2 {
		t.Errorf("the errors are %s", got)
	}

	ab.Write(config("2"))
	_, outputs["POST /reload"] = ab.SendAdmin("POST", "/reload", "")
	ab.Write(config("4"))
	ab.Signal(syscall.SIGHUP)
	testsupport.Eventually(t, "the reload is logged", func() bool { return len(ab.Log.Lines(e2e.MsgReloaded)) >= 2 })
	ab.Write(strings.Replace(config("4"), "htt", "htp://u:s3cret-user@", 3))
	_, outputs["POST /reload with faults"] = ab.SendAdmin("POST", "/reload", "")
	ask()
	_, outputs["PUT /sample"] = ab.SendAdmin("PUT", "/sample", `{"state":"cleared"}`)
	c.Close()
	ab.Stop()
	outputs["the log"] = ab.Log.String()
	for what, text := range outputs {
		testsupport.True(t, text != "", "%s says nothing", what)
		for line := range strings.Lines(text) {
			if strings.Contains(line, "s3cret") {
				t.Errorf("%s: a secret in %s", what, testsupport.Tail(line, 2000))
			}
		}
	}

	// Only this option prints secrets.
	stdout, _, code := e2e.Run(t, nil, "check", "--config", next, "--show-secrets")
	if want := []string{"s3cret-value-2", "s3cret-alone-2", "s3cret-base64==", "s3cret-header-2", "s3cret-partner-2", "s3cret-dead", "s3cret-tls", "s3cret-condition"}; code != 0 || lacking(stdout, want) != nil {
		t.Errorf("check --show-secrets lacks %v:\n%s", lacking(stdout, want), stdout)
	}
	testsupport.True(t, !strings.Contains(stdout, "s3cret-admin-token"), "check --show-secrets prints the content of files")
	for _, args := range [][]string{{"--json"}, {"--quiet"}, {"--admin", admin}} {
		if _, stderr, code := e2e.Run(t, nil, append([]string{"check", "--config", next, "--show-secrets"}, args...)...); code != 2 || !strings.Contains(stderr, "--show-secrets") {
			t.Errorf("--show-secrets %v: exit status %d, %s", args, code, stderr)
		}
	}
}

// lacking returns the words that are not in text.
func lacking(text string, words []string) (all []string) {
	for _, w := range words {
		if !strings.Contains(text, w) {
			all = append(all, w)
		}
	}
	return all
}
