package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

const twoSSPs = `
ssps:
  - {name: openx, endpoints: ["http://127.0.0.1:9000/bid"], pool: {max_conns: 64}}
  - {name: backup, endpoints: ["http://127.0.0.1:9001/bid"]}
routes:
  - {name: default, match: {path: /fillbuffer}, mode: split, ssps: [openx, {name: backup, weight: 3}]}
`

func TestVariablesOverrideTheFile(t *testing.T) {
	cfg := mustParseEnv(t, twoSSPs, map[string]string{
		"ADBUFFER_SERVER_LISTEN":                     "unix:/run/adbuffer.sock",
		"ADBUFFER_SERVER_MAX_IN_FLIGHT":              "7",
		"ADBUFFER_SERVER_ERROR_DETAIL":               "false",
		"ADBUFFER_SERVER_DRAIN_TIMEOUT":              "3s",
		"ADBUFFER_SERVER_TRUSTED_PROXIES_0":          "10.0.0.0/8", // the file has no such list
		"ADBUFFER_LOG_ACCESS_SAMPLE":                 "0.5",
		"ADBUFFER_SSPS_OPENX_POOL_MAX_CONNS":         "32",
		"ADBUFFER_SSPS_BACKUP_POOL_MAX_CONNS":        "16",
		"ADBUFFER_SSPS_BACKUP_ENDPOINTS_0":           "https://ssp.example/bid",
		"ADBUFFER_SSPS_THIRD_NAME":                   "third", // the file has no such SSP
		"ADBUFFER_ROUTES_DEFAULT_SSPS_OPENX_WEIGHT":  "9",     // the file has only the name
		"ADBUFFER_ROUTES_DEFAULT_SSPS_BACKUP_WEIGHT": "",
		"ADBUFFER_SERVICE_HOST":                      "10.96.0.1", // as Kubernetes injects
		"ADBUFFER_SERVER_LISTEN_EXTRA":               "x",
		"ADBUFFER_PORT_8080_TCP":                     "tcp://10.96.0.1:8080",
		"ADBUFFER_SSP_DEFAULTS_POOL_MAX_PENDING":     "5",
	})
	got := []any{
		cfg.Server.Listen, cfg.Server.MaxInFlight, cfg.Server.ErrorDetail, cfg.Server.Drain.Timeout,
		len(cfg.Server.TrustedProxies), cfg.Log.Access.Sample, len(cfg.SSPs),
		cfg.SSPs[0].Pool.MaxConns, cfg.SSPs[1].Pool.MaxConns, cfg.SSPs[1].Endpoints[0].URL,
		cfg.Routes[0].SSPs[0].Weight, cfg.Routes[0].SSPs[1].Weight,
		cfg.SSPs[0].Pool.MaxPending, cfg.SSPs[1].Pool.MaxPending,
	}
	want := []any{
		Address("unix:/run/adbuffer.sock"), 7, false, 3 * time.Second,
		2, 0.5, 2,
		32, 16, "https://ssp.example/bid",
		9, 3,
		5, 5,
	}
	testsupport.True(t, reflect.DeepEqual(got, want), "got  %v\nwant %v", got, want)
}

func TestVariablesThatAreNoSettingsWarn(t *testing.T) {
	_, got, err := Parse([]byte(twoSSPs), Env{
		"ADBUFFER_SERVER_LISTN":               "127.0.0.1:1",
		"ADBUFFER_SSPS_OPENY_POOL_MAX_CONNS":  "32", // the file has no such SSP
		"ADBUFFER_SSPS_1_POOL_MAX_CONNS":      "32", // elements went by their index
		"ADBUFFER_SSPS_2_POOL_MAX_CONNS":      "32", // the file has two SSPs
		"ADBUFFER_SERVER_TRUSTED_PROXIES_0":   "10.0.0.0/8",
		"ADBUFFER_SERVER_MAX_INFLIGHT":        "",   // is ignored, as a setting would be
		"ADBUFFER_SSPS_OPENX_POOL_MAX_CONNS":  "32", // the settings follow
		"ADBUFFER_SSPS_OPENX_ENDPOINTS_0":     "http://127.0.0.1:9/",
		"ADBUFFER_SERVER_REUSE_PORT":          "false",
		"ADBUFFER_CONFIG":                     "a.yaml", // variables of other purposes follow
		"ADBUFFER_SERVICE_HOST":               "10.96.0.1",
		"ADBUFFER_PORT_8080_TCP":              "tcp://10.96.0.1:8080",
		"ADBUFFER_ADMIN_SERVICE_HOST":         "10.96.0.1",
		"ADBUFFER_ADMIN_SERVICE_PORT_METRICS": "9090",
		"ADBUFFER_ADMIN_PORT":                 "tcp://10.96.0.1:9090",
		"ADBUFFER_ADMIN_PORT_9090_TCP_ADDR":   "10.96.0.1",
	})
	testsupport.NoError(t, err)
	const ignored = "this variable names no setting of this configuration, and is ignored"
	want := []Warning{
		{"ADBUFFER_SERVER_LISTN", ignored + "; did you mean ADBUFFER_SERVER_LISTEN?"},
		{"ADBUFFER_SERVER_TRUSTED_PROXIES_0", ignored},
		{"ADBUFFER_SSPS_1_POOL_MAX_CONNS", ignored + "; write the element's name in place of its index: ADBUFFER_SSPS_BACKUP_POOL_MAX_CONNS"},
		{"ADBUFFER_SSPS_2_POOL_MAX_CONNS", ignored},
		{"ADBUFFER_SSPS_OPENY_POOL_MAX_CONNS", ignored + "; did you mean ADBUFFER_SSPS_OPENX_POOL_MAX_CONNS?"},
	}
	got = slices.DeleteFunc(got, func(w Warning) bool { return w.Path == "server.max_connections" }) // depends on this machine
	testsupport.True(t, slices.Equal(got, want), "got %v\nwant %v", got, want)
}

func TestDerivedDefaultsFollowVariables(t *testing.T) {
	cfg := mustParseEnv(t, twoSSPs, map[string]string{"ADBUFFER_SSPS_OPENX_POOL_MAX_CONNS": "2"})
	pool := cfg.SSPs[0].Pool
	testsupport.True(t, pool.MaxIdle == 2 && pool.MaxHTTP2Conns == 2, "max_idle %d and max_http2_conns %d, want max_conns 2", pool.MaxIdle, pool.MaxHTTP2Conns)
}

func TestErrorOfAVariableNamesIt(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"ADBUFFER_SERVER_MAX_IN_FLIGHT":         {"many", "ADBUFFER_SERVER_MAX_IN_FLIGHT: server.max_in_flight: many: must be a whole number"},
		"ADBUFFER_SERVER_MAX_CONNECTIONS":       {"0", "ADBUFFER_SERVER_MAX_CONNECTIONS: server.max_connections: 0: must be from 1 to 10000000"},
		"ADBUFFER_SERVER_ERROR_DETAIL":          {"yes", "ADBUFFER_SERVER_ERROR_DETAIL: server.error_detail: yes: must be true or false"},
		"ADBUFFER_LOG_ACCESS_SAMPLE":            {"NaN", "ADBUFFER_LOG_ACCESS_SAMPLE: log.access.sample: NaN: must be from 0 to 1"},
		"ADBUFFER_SSPS_BACKUP_TIMEOUTS_CONNECT": {"80", `ADBUFFER_SSPS_BACKUP_TIMEOUTS_CONNECT: ssps[1].timeouts.connect: 80: must be a duration with a unit, for example "80ms"`},
		"ADBUFFER_SSP_DEFAULTS_PROTOCOL":        {"spdy", "ADBUFFER_SSP_DEFAULTS_PROTOCOL: ssp_defaults.protocol: spdy: must be one of auto, http1, http1-pipelined, http2, h2c"},
	} {
		_, _, err := Parse([]byte(twoSSPs), Env{name: c.value})
		testsupport.True(t, err != nil && err.Error() == c.want, "%s=%s:\ngot  %v\nwant %s", name, c.value, err, c.want)
	}
}

func TestNoTwoKeysShareAVariable(t *testing.T) {
	paths := map[string]string{}
	visitKeys(reflect.TypeFor[document](), "", "", func(path string, k key) {
		if isSection(k.typ) || isList(k.typ) {
			return
		}
		name := strings.ToUpper(strings.NewReplacer(".", "_", "[]", "_0").Replace(path))
		other, ok := paths[name]
		testsupport.True(t, !ok, "%s and %s are both set by ADBUFFER_%s", path, other, name)
		paths[name] = path
	})
	testsupport.AtLeast(t, len(paths), 100, "saw %d keys, want all of them")
}

func TestAVariableReplacesAValueOfTheWrongType(t *testing.T) {
	text := strings.Replace(twoSSPs, "max_conns: 64", "max_conns: many", 1)
	cfg := mustParseEnv(t, text, map[string]string{"ADBUFFER_SSPS_OPENX_POOL_MAX_CONNS": "32"})
	testsupport.Equal(t, cfg.SSPs[0].Pool.MaxConns, 32, "max_conns is %d")
}

func TestElementsWithNamesGoByThemInVariables(t *testing.T) {
	cfg := mustParseEnv(t, `
ssps:
  - {name: open-x, endpoints: ["http://127.0.0.1:9000/bid"], headers: {set: [{name: X-Api-Key, value: a}]}}
  - {name: "${SECOND}", endpoints: ["http://127.0.0.1:9001/bid"]}
routes:
  - {name: "1st", match: {path: /fillbuffer, query: [{name: q, value: a}]}, mode: waterfall, ssps: [open-x, b]}
`, Env{
		"SECOND": "b",
		"ADBUFFER_SSPS_OPEN_X_HEADERS_SET_X_API_KEY_VALUE": "k",
		"ADBUFFER_SSPS_B_POOL_MAX_CONNS":                   "7",
		"ADBUFFER_ROUTES_1ST_SSPS_OPEN_X_TIMEOUT":          "9ms",
		"ADBUFFER_ROUTES_1ST_MATCH_QUERY_0_VALUE":          "z", // names of conditions may repeat
	})
	got := []any{cfg.SSPs[0].Headers.Set[0].Value, cfg.SSPs[1].Pool.MaxConns, cfg.Routes[0].SSPs[0].Timeout, *cfg.Routes[0].Match.Query[0].Value}
	want := []any{"k", 7, 9 * time.Millisecond, "z"}
	testsupport.True(t, reflect.DeepEqual(got, want), "got  %v\nwant %v", got, want)
	merged := mustParseEnv(t, `
ssps:
  - &a {name: a, endpoints: ["http://127.0.0.1:9000/bid"], pool: {max_conns: 3}}
  - {<<: *a, name: b}
  - {<<: [{name: c}, *a]}
routes: [{name: r, match: {path: /}, mode: split, ssps: [a, b, c]}]
`, Env{"ADBUFFER_SSPS_B_POOL_MAX_CONNS": "5", "ADBUFFER_SSPS_C_POOL_MAX_CONNS": "6"})
	if got := []int{merged.SSPs[0].Pool.MaxConns, merged.SSPs[1].Pool.MaxConns, merged.SSPs[2].Pool.MaxConns}; !slices.Equal(got, []int{3, 5, 6}) {
		t.Errorf("max_conns of merged elements: %v", got)
	}
}

func TestAVariableOfTwoSettingsIsAnError(t *testing.T) {
	text := strings.NewReplacer("openx", "a-b", "backup", "a_b").Replace(twoSSPs)
	mustParse(t, text)
	_, _, err := Parse([]byte(text), Env{"ADBUFFER_SSPS_A_B_POOL_MAX_CONNS": "7"})
	const want = "ADBUFFER_SSPS_A_B_POOL_MAX_CONNS: ssps[1].pool.max_conns: sets ssps[0].pool.max_conns too; give one of them another name"
	testsupport.True(t, err != nil && err.Error() == want, "got  %v\nwant %s", err, want)
}

func TestReferencesAreReplaced(t *testing.T) {
	env := Env{"PORT": "81", "EMPTY": "", "CONNS": "9", "KEY": "s3cret", "COST": "5$", "YES": "true"}
	for text, want := range map[string]string{
		"":                       "",
		"a $ b $$ c $PORT":       "a $ b $$ c $PORT",
		"${PORT}":                "81",
		"a:${PORT}-${PORT}":      "a:81-81",
		"${EMPTY}":               "",
		"${EMPTY:-x}${NONE:-y}":  "xy",
		"${NONE:-}":              "",
		"${PORT:-x}":             "81",
		"${NONE:-http://h:1/$a}": "http://h:1/$a",
		"$${PORT}":               "${PORT}",
		"$$${PORT}":              "$81",
		"$$$${PORT}":             "$${PORT}",
		"${COST}{PORT}":          "5${PORT}", // a value is not replaced again
	} {
		got, err := env.Expand(text)
		testsupport.True(t, got == want && err == nil, "%s: %q, %v; want %q", text, got, err, want)
	}
	for _, text := range []string{"${NONE}", "${}", "${1A}", "${A B}", "${A", "${A:x}", "${A-x}", "${:-x}", "${s3cret value}"} {
		got, err := env.Expand(text)
		testsupport.True(t, err != nil && !strings.Contains(err.Error(), "s3cret"), "%s: %q, %v; want an error without the text", text, got, err)
	}
	cfg, warnings, err := Parse([]byte(`
server: {listen: "127.0.0.1:${PORT}", error_detail: "${YES}", max_in_flight: "${EMPTY:-7}", via: "${YES}", drain: {delay: "${NONE:-3s}"}}
log:
  access: {slow: "${SLOW:-20ms}", sample: "${SAMPLE:-0.5}", enabled: true}
  level: ${LEVEL:-warn}
  format: ${NONE:-}
ssps:
  - name: openx
    endpoints: ["http://127.0.0.1:9000/bid?key=${KEY}"]
    headers: {set: [{name: X-Key, value: "${KEY}"}, {name: X-Empty, value: "${EMPTY}"}]}
    pool:
      max_conns: ${CONNS}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`), env)
	testsupport.NoError(t, err)
	got := []any{cfg.Server.Listen, cfg.Server.ErrorDetail, cfg.Server.MaxInFlight, cfg.Server.Via, cfg.Server.Drain.Delay, cfg.Log.Access.Slow, cfg.Log.Access.Sample, cfg.Log.Level, cfg.Log.Format,
		cfg.SSPs[0].Endpoints[0].URL, cfg.SSPs[0].Headers.Set[0].Value, cfg.SSPs[0].Headers.Set[1].Value, cfg.SSPs[0].Pool.MaxConns}
	want := []any{Address("127.0.0.1:81"), true, 7, true, 3 * time.Second, 20 * time.Millisecond, 0.5, LogLevel("warn"), LogFormat("json"),
		"http://127.0.0.1:9000/bid?key=s3cret", "s3cret", "", 9}
	testsupport.True(t, reflect.DeepEqual(got, want), "got  %v\nwant %v", got, want)
	shown := string(cfg.YAML())
	testsupport.True(t, !strings.Contains(shown, "s3cret"), "a secret is shown:\n%s", shown)
	for _, w := range warnings {
		if w.Path != "server.max_connections" { // depends on this machine
			t.Errorf("warning: %v", w)
		}
	}
}

func TestReferencedVariablesAreFoundHoweverYAMLWritesThem(t *testing.T) {
	env := Env{"KEY": "s3cret", "LONG_KEY": "s3cret-and-MORE", "SHORT": "abcde", "OTHER": "another"}
	for document, want := range map[string][]string{
		"a: ${KEY}":                         {"s3cret", "s3cret"},
		`a: "$\x7bKEY}"`:                    {"s3cret", "s3cret"},
		`a: "\u0024{K\x45Y}"`:               {"s3cret", "s3cret"},
		"a: \"$\\\n  {KEY}\"":               {"s3cret", "s3cret"},
		"a: [&k {b: '${KEY:-x}'}, *k]":      {"s3cret", "s3cret"},
		"a: ${KEY}\nb: ${LONG_KEY}":         {"s3cret-and-MORE", "s3cret-and-more", "s3cret", "s3cret"}, // "s3cret" alone would leave "-and-MORE"
		"a: ${SHORT} ${NONE}\n# ${OTHER}\n": nil,
		"":                                  nil,
		"a: [${KEY}":                        nil, // not YAML
		"a: &a [*a]\nb: ${KEY}":             nil, // refused
	} {
		got := env.Referenced([]byte(document))
		testsupport.True(t, slices.Equal(got, want), "%s: %q, want %q", document, got, want)
	}
}

// An error shows what the file says, not the value, which may be a secret in the wrong place.
func TestAnErrorShowsTheReferenceAndNotItsValue(t *testing.T) {
	_, _, err := Parse([]byte(strings.Replace(twoSSPs, "name: openx", `name: "${KEY}"`, 1)), Env{"KEY": "S3cret"})
	testsupport.True(t, err != nil && !strings.Contains(err.Error(), "S3cret") && strings.Contains(err.Error(), "ssps[0].name: ${KEY}: must be 1 to 64 of a-z"), "%v", err)
}
