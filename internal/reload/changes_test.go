package reload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/config"
)

const comparedYAML = `
server: {listen: "127.0.0.1:8080"}
log: {level: info}
ssps:
  - name: openx
    endpoints: ["http://127.0.0.1:9000/bid?v=2&apikey=s3cret", "http://127.0.0.1:9001/bid?v=2&apikey=s3cret"]
    headers: {set: [{name: Authorization, value: "Bearer s3cret"}, {name: X-Openrtb-Version, value: "2.6"}]}
  - {name: rubicon, endpoints: ["https://127.0.0.1:9002/bid"]}
routes:
  - {name: video, match: {path: /video}, ssps: [rubicon]}
  - {name: default, match: {path: /fillbuffer}, ssps: [openx]}
`

// edited returns comparedYAML, parsed, with the text old replaced by next.
func edited(t *testing.T, old, next string) *config.Config {
	t.Helper()
	if !strings.Contains(comparedYAML, old) {
		t.Fatalf("%q is not in the configuration", old)
	}
	cfg, _, err := config.Parse([]byte(strings.ReplaceAll(comparedYAML, old, next)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestCompareNamesEachChangeWithItsEffect(t *testing.T) {
	const rubicon = `{name: rubicon, endpoints: ["https://127.0.0.1:9002/bid"]`
	for _, c := range []struct{ old, next, want string }{
		{"{level: info}", "{level: info}", ""},
		{"{level: info}", "{level: debug}", "log.level: info -> debug (in place)"},
		{"{level: info}", "{format: console}", "log.format: json -> console (restart)"},
		{"127.0.0.1:8080", "127.0.0.1:8081", "server.listen: 127.0.0.1:8080 -> 127.0.0.1:8081 (restart)"},
		{rubicon, rubicon + ", pool: {max_conns: 9}", "ssps[rubicon].pool.max_conns: 256 -> 9 (in place); ssps[rubicon].pool.max_idle: 256 -> 9 (in place)"},
		{rubicon, rubicon + ", max_response_bytes: 9000", "ssps[rubicon].max_response_bytes: 1048576 -> 9000 (new connections)"},
		{rubicon, rubicon + ", pool: {linger: 1s}", "ssps[rubicon].pool.linger: 200ms -> 1s (new connections)"},
		{rubicon, rubicon + ", protocol: http1", "ssps[rubicon].protocol: auto -> http1 (new pool)"},
		{rubicon, rubicon + ", tls: {server_name: b}", "ssps[rubicon].tls.server_name: none -> b (new pool)"},
		{"9002/bid", "9003/bid", "ssps[rubicon].endpoints: [https://127.0.0.1:9002/bid] -> [https://127.0.0.1:9003/bid] (new pool)"},
		{"9002/bid", "9002/bid?v=3", "ssps[rubicon].endpoints: [https://127.0.0.1:9002/bid] -> [https://127.0.0.1:9002/bid?v=(hidden)] (in place)"},
		{"rubicon", "magnite", "ssps[magnite]: none -> [https://127.0.0.1:9002/bid] (new pool); routes[video].ssps: [{name: rubicon, weight: 0, timeout: 0s, secondary: false}] -> " +
			"[{name: magnite, weight: 0, timeout: 0s, secondary: false}] (in place); ssps[rubicon]: [https://127.0.0.1:9002/bid] -> none (pool drains)"},
		{"{path: /video}", "{path: /video, host: a.example}", `routes[video].match.host: none -> a.example (in place)`},
		{"name: video", "name: vast", "routes[vast]: none -> {path: /video, host: , query: [], header: []} (in place); routes: video, default -> vast, default (in place); " +
			"routes[video]: {path: /video, host: , query: [], header: []} -> none (in place)"},
	} {
		var got []string
		for _, change := range Compare(edited(t, "{level: info}", "{level: info}"), edited(t, c.old, c.next)) {
			got = append(got, change.String())
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s in place of %s:\ngot  %s\nwant %s", c.next, c.old, s, c.want)
		}
	}
}

func TestCompareHidesSecretsAndStillSeesThatTheyChanged(t *testing.T) {
	before := edited(t, "s3cret", "s3cret")
	changes := Compare(before, edited(t, "s3cret", "0ther"))
	if len(changes) != 2 {
		t.Fatalf("%v, want the endpoints and the header", changes)
	}
	for _, c := range changes {
		if s := c.String(); strings.Contains(s, "s3cret") || strings.Contains(s, "0ther") || !strings.Contains(s, config.Hidden) || !strings.Contains(s, "another secret") {
			t.Errorf("the change is shown as %s", s)
		}
		if c.Effect != InPlace {
			t.Errorf("%s: the hosts are the same", c)
		}
	}
}

func TestHiddenSecretsCountAsUnchanged(t *testing.T) {
	cfg := edited(t, "2.6", "2.6")
	changes, err := compareYAML(cfg.YAML(), cfg.YAMLWithSecrets())
	if err != nil || len(changes) != 0 {
		t.Errorf("%v, %v; want no change", changes, err)
	}
	changes, err = compareYAML(cfg.YAML(), edited(t, "2.6", "2.5").YAMLWithSecrets())
	if err != nil || len(changes) != 1 || strings.Contains(fmt.Sprint(changes), "s3cret") {
		t.Errorf("%v, %v; want one change, without secrets", changes, err)
	}
	if _, err := compareYAML([]byte("a: [b"), cfg.YAML()); err == nil {
		t.Error("half a document is no error")
	}
}

func TestCompareSeesAnotherSecretInTheSameFile(t *testing.T) {
	for path, settings := range map[string]string{
		"admin.token_file":          `admin: {token_file: "FILE"}`,
		"fleet.redis.password_file": `fleet: {redis: {address: "127.0.0.1:1", password_file: "FILE"}}`, // a reload said "unchanged"
	} {
		file := filepath.Join(t.TempDir(), "secret")
		load := func(secret string) *config.Config {
			if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			return edited(t, "log: {level: info}", strings.Replace(settings, "FILE", file, 1))
		}
		one, other := load("t0ken"), load("an0ther")
		changes := Compare(one, other)
		if len(changes) != 1 || changes[0].Path != path || changes[0].Effect != InPlace || strings.Contains(changes[0].String(), "0ther") {
			t.Errorf("%v, want only %s", changes, path)
		}
		if changes := Compare(one, one); len(changes) != 0 {
			t.Errorf("%v, want none", changes)
		}
	}
}

// Hostile bytes from another process must not harm this one. A document equals itself.
func FuzzCompareYAML(f *testing.F) {
	f.Add([]byte(comparedYAML), []byte("server: {listen: a}"))
	f.Add([]byte("ssps: {a: b}\nroutes: [1, [2], {name: [x]}, {name: y, match: 3}]"), []byte("a: &x {b: *x}\nssps: *x"))
	f.Add([]byte("a: 1\na: 2\nssps: [{name: a}, {name: a, host: b}, {}]"), []byte("[]"))
	f.Add([]byte("ssps: [{name: \"a].b[\", endpoints: x, headers: {set: [{value: 1}]}}]"), []byte("? {a: b}\n: c"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if same, err := compareYAML(a, a); err == nil && len(same) != 0 {
			t.Errorf("differs from itself: %v", same)
		}
		changes, err := compareYAML(a, b)
		if err != nil {
			return
		}
		for _, c := range changes {
			if c.Effect == "" || c.Old == c.New && c.Old != "" {
				t.Errorf("%+v says nothing", c)
			}
		}
	})
}
