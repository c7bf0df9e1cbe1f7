package reload

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// checkAgainst compares a configuration with the running ab, in ab's environment.
func checkAgainst(ab *e2e.Process, config string, args ...string) (stdout, stderr string, code int) {
	ab.T.Helper()
	return e2e.Run(ab.T, ab.Cmd.Env, append([]string{"check", "--config", e2e.WriteConfig(ab.T, config), "--admin", "http://" + ab.AdminAddr}, args...)...)
}

func TestCheckAgainstShowsTheEffectsOfAReload(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.Healthy(t)
	two := func(first, second string) string {
		return fmt.Sprintf("ssps:\n  - {name: openx, %s}\n  - {name: %s}\nroutes:\n  - {name: default, match: {path: /fillbuffer}, ssps: [openx]}\n", first, second)
	}
	now := two(fmt.Sprintf("endpoints: [%q]", a.URL()), fmt.Sprintf("gone, endpoints: [%q]", b.URL()))
	ab := e2e.Start(t, now)

	stdout, stderr, code := checkAgainst(ab, now)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "a reload would change nothing") || strings.Contains(stdout, "SETTING") {
		t.Errorf("the same configuration: exit status %d, want 0: %s%s", code, stdout, stderr)
	}
	stdout, stderr, code = checkAgainst(ab, two(fmt.Sprintf("endpoints: [%q], pool: {max_conns: 9, linger: 1s}", b.URL()), fmt.Sprintf("come, endpoints: [%q]", a.URL())))
	testsupport.True(t, code == 0 && stderr == "", "exit status %d, want 0: %s", code, stderr)
	for _, want := range [][]string{
		{"SETTING", "RUNNING", "FILE", "A RELOAD"},
		{"ssps[openx].endpoints", a.Addr(), b.Addr(), "new pool, the old one drains"},
		{"ssps[openx].pool.max_conns", "256", "9", "in place"},
		{"ssps[openx].pool.linger", "200ms", "1s", "new connections"},
		{"ssps[come]", "-", a.Addr(), "added, with a pool of its own"},
		{"ssps[gone]", b.Addr(), "-", "removed, its pool drains"},
		{"# a reload would apply 6 changes: "}, // max_idle follows max_conns
	} {
		testsupport.True(t, hasLineWith(stdout, want), "no line has %q:\n%s", want, stdout)
	}
	ab.WantMetric(256, "adbuffer_pool_connections_limit", "ssp=openx") // the check changed nothing

	// What a reload cannot apply has the exit status 1.
	_, stderr, code = checkAgainst(ab, "")
	testsupport.True(t, code == 1 && strings.Contains(stderr, "ssps: must have at least one SSP"), "an empty file: exit status %d: %s", code, stderr)
	stdout, _, code = checkAgainst(ab, "log: {format: console}\n"+now)
	if code != 1 || !hasLineWith(stdout, []string{"log.format", "json", "console", "needs a restart"}) || !strings.Contains(stdout, "a restart is needed for log.format") {
		t.Errorf("exit status %d, want 1: %s", code, stdout)
	}
	stdout, _, code = checkAgainst(ab, "log: {format: console}\n"+now, "--json")
	var res struct {
		Valid   bool
		Against struct {
			Verdict string
			Changes []struct{ Path, Old, New, Effect string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &res); err != nil || code != 1 || !res.Valid || res.Against.Verdict != "restart" || len(res.Against.Changes) != 1 || res.Against.Changes[0].Effect != "restart" {
		t.Errorf("--json: exit status %d, %v: %s", code, err, stdout)
	}
}

func hasLineWith(text string, words []string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, w := range words {
			_, rest, ok := strings.Cut(line, w)
			all, line = all && ok, rest
		}
		if all {
			return true
		}
	}
	return false
}

// The service makes the comparison itself. The text that its admin listener shows would reveal neither
// another content of a file nor which secret has changed, and a shell has other variables.
func TestADryRunSeesFilesAndVariablesOfTheServiceAndChangesNothing(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		testsupport.NoError(t, os.WriteFile(token, []byte(text), 0o600))
	}
	write("s3cret-of-the-operators")
	config := "admin: {token_file: " + token + "}\n" + e2e.Single(e2e.Healthy(t).URL())
	ab := e2e.Start(t, config)
	ab.Write("ssps: []") // from now on, no reload uses the other content
	if status, res := ab.Reload(); status != 422 {
		t.Fatalf("%d %+v", status, res)
	}
	write("s3cret-of-other-operators")
	hash := ab.Scrape().Series["adbuffer_config_info"]
	for i, c := range []struct {
		text string
		env  []string // of the shell
		code int
		want []string
	}{
		{config, []string{"ADBUFFER_SERVER_LISTEN=127.0.0.1:1"}, 0, []string{"admin.token_file", "with another content", "in place"}},
		{strings.Replace(config, token, token+"x", 1), nil, 1, []string{".yaml:1:21: admin.token_file: ", "no such file"}},
		{strings.Replace(config, "ssps: [openx]", "ssps: [openks]", 1), nil, 1, []string{".yaml:", "routes[0].ssps[0].name: openks", "did you mean openx?"}},
		{"#" + strings.Repeat("x", 1<<20), nil, 1, []string{"must not be larger than 1048576 bytes"}},
	} {
		file := e2e.WriteConfig(t, c.text)
		stdout, stderr, code := e2e.Run(t, c.env, "check", "--config", file, "--admin", "http://"+ab.AdminAddr)
		if code != c.code || !hasLineWith(stdout+stderr, c.want) || strings.Contains(stdout+stderr, "s3cret") {
			t.Errorf("%d: exit status %d, want %d and %q: %s%s", i, code, c.code, c.want, stdout, stderr)
		}
	}
	if now := ab.Scrape().Series["adbuffer_config_info"]; fmt.Sprint(now) != fmt.Sprint(hash) {
		t.Errorf("dry runs made %v of %v", now, hash)
	}
	for target, want := range map[string]int{"/reload?dry_run=yes": 400, "/reload?dry_run=0": 400, "/reload?dry_run=1": 422} {
		if status, body := ab.SendAdmin("POST", target, "ssps: []"); status != want {
			t.Errorf("%s: %d, want %d: %s", target, status, want, body)
		}
	}
}

// A client of the admin listener chooses the document, and must not read the service's variables with it.
func TestADryRunShowsNoVariableOfTheService(t *testing.T) {
	t.Parallel()
	config := e2e.Single(e2e.Healthy(t).URL())
	ab := e2e.Start(t, config, "CLOUD_KEY=S3cret-Key", "LIMIT=77")
	for _, c := range []struct{ old, document, want string }{
		{"path: /fillbuffer", `path: "/${CLOUD_KEY}"`, "/(hidden)"},
		{"path: /fillbuffer", `path: /fillbuffer, host: "${CLOUD_KEY}"`, "(hidden)"},
		{"path: /fillbuffer", `path: "/$\x7bCLOUD\u005fKEY}"`, "/(hidden)"}, // YAML's escapes
		{"name: default", `name: "${CLOUD_KEY}"`, "${CLOUD_KEY}"},           // an error
		{"name: openx", "name: openx\n    max_in_flight: ${LIMIT}", "77"},
	} {
		document := strings.Replace(config, c.old, c.document, 1)
		_, body := ab.SendAdmin("POST", "/reload?dry_run=1", document)
		if document == config || strings.Contains(strings.ToLower(body), "s3cret") || !strings.Contains(body, c.want) {
			t.Errorf("%s\n%s\nwant %q", document, body, c.want)
		}
	}
}

func TestCheckAgainstNamesTheReasonIfItCannotConnect(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	testsupport.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	ssp := e2e.Healthy(t)
	config := e2e.Single(ssp.URL())
	ab := e2e.Start(t, config, "ADBUFFER_ADMIN_LISTEN=0.0.0.0:0", "ADBUFFER_ADMIN_TOKEN_FILE="+token)
	if stdout, stderr, code := checkAgainst(ab, config, "--token-file", token); code != 0 {
		t.Errorf("with the token: exit status %d, want 0: %s%s", code, stdout, stderr)
	}
	file := e2e.WriteConfig(t, config)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--admin", "http://" + ab.AdminAddr}, 1, "--token-file"},
		{[]string{"--admin", ssp.URL()}, 1, "is it the admin listener of an adbuffer?"},
		{[]string{"--admin", "http://127.0.0.1:1"}, 1, "connection refused"},
		{[]string{"--admin", "http://" + ab.AdminAddr, "--token-file", token + "x"}, 1, "--token-file"},
		{[]string{"--admin", "https://" + ab.AdminAddr, "--ca-file", token}, 1, "--ca-file"},
		{[]string{"--admin", "https://" + ab.AdminAddr, "--cert-file", token}, 1, "--cert-file"},
		{[]string{"--admin", "127.0.0.1:9090"}, 2, "must be the URL"},
		{[]string{"--admin", "unix:/run/admin.sock"}, 2, "must be the URL"},
		{[]string{"--insecure"}, 2, "--admin"},
	} {
		stdout, stderr, code := e2e.Run(t, ab.Cmd.Env, append([]string{"check", "--config", file}, c.args...)...)
		testsupport.True(t, code == c.code && strings.Contains(stderr, c.want), "%v: exit status %d, want %d and %q: %s", c.args, code, c.code, c.want, stderr)
		if c.want == "connection refused" {
			testsupport.True(t, strings.Contains(stdout, " is valid (SSPs: 1, routes: 1,"), "%v: %s", c.args, stdout)
		}
	}
}
