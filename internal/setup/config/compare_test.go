package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
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
func edited(t *testing.T, old, next string) *Config {
	t.Helper()
	testsupport.MustTrue(t, strings.Contains(comparedYAML, old), "%q is not in the configuration", old)
	cfg, _, err := Parse([]byte(strings.ReplaceAll(comparedYAML, old, next)), nil)
	testsupport.NoError(t, err)
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
		{"rubicon", "magnite", "ssps[magnite]: none -> [https://127.0.0.1:9002/bid] (new pool); ssps[rubicon]: [https://127.0.0.1:9002/bid] -> none (pool drains); " +
			"routes[video].ssps: [{name: rubicon, weight: 0, timeout: 0s, secondary: false, when: []}] -> [{name: magnite, weight: 0, timeout: 0s, secondary: false, when: []}] (in place)"},
		{"{path: /video}", "{path: /video, host: a.example}", `routes[video].match.host: none -> a.example (in place)`},
		{"name: video", "name: vast", "routes[vast]: none -> {path: /video, host: , query: [], header: [], openrtb: [], holdback: 0} (in place); " +
			"routes[video]: {path: /video, host: , query: [], header: [], openrtb: [], holdback: 0} -> none (in place); routes: video, default -> vast, default (in place)"},
	} {
		var got []string
		for _, change := range Compare(edited(t, "{level: info}", "{level: info}"), edited(t, c.old, c.next)) {
			got = append(got, change.String())
		}
		s := strings.Join(got, "; ")
		testsupport.True(t, s == c.want, "%s in place of %s:\ngot  %s\nwant %s", c.next, c.old, s, c.want)
	}
}

func TestCompareHidesSecretsAndStillSeesThatTheyChanged(t *testing.T) {
	before := edited(t, "s3cret", "s3cret")
	changes := Compare(before, edited(t, "s3cret", "0ther"))
	testsupport.MustTrue(t, len(changes) == 2, "%v, want the endpoints and the header", changes)
	for _, c := range changes {
		s := c.String()
		testsupport.True(t, !strings.Contains(s, "s3cret") && !strings.Contains(s, "0ther") && strings.Contains(s, Hidden) && strings.Contains(s, "another secret"), "the change is shown as %s", s)
		testsupport.True(t, c.Effect == InPlace, "%s: the hosts are the same", c)
	}
}

func TestCompareSeesAnotherSecretInTheSameFile(t *testing.T) {
	for path, settings := range map[string]string{
		"admin.token_file":          `admin: {token_file: "FILE"}`,
		"fleet.redis.password_file": `fleet: {redis: {address: "127.0.0.1:1", password_file: "FILE"}}`, // a reload said "unchanged"
	} {
		file := filepath.Join(t.TempDir(), "secret")
		load := func(secret string) *Config {
			testsupport.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
			return edited(t, "log: {level: info}", strings.Replace(settings, "FILE", file, 1))
		}
		one, other := load("t0ken"), load("an0ther")
		changes := Compare(one, other)
		testsupport.True(t, len(changes) == 1 && changes[0].Path == path && changes[0].Effect == InPlace && !strings.Contains(changes[0].String(), "0ther"), "%v, want only %s", changes, path)
		if changes := Compare(one, one); len(changes) != 0 {
			t.Errorf("%v, want none", changes)
		}
	}
}

// A key without an effect would need a restart, although its author may not have thought of a reload.
func TestEveryKeyHasTheEffectOfATag(t *testing.T) {
	tags := map[Effect]int{}
	visitKeys(reflect.TypeFor[Config](), "", "", func(path string, k key) {
		switch k.effect {
		case InPlace, NewConnections, NewPool, Restart:
			tags[k.effect]++
		default:
			testsupport.True(t, path == "ssps", "%s has the effect %q", path, k.effect)
		}
		hide := k.tag.Get("hide")
		testsupport.True(t, hide == "" || hiders[hide] != nil, "%s: there is no hider %q", path, hide)
	})
	testsupport.True(t, len(tags) == 4, "the effects are %v", tags)
}
