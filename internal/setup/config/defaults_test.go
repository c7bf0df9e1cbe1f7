package config

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSSPDefaultsAreMergedDeeplyUnderEachSSP(t *testing.T) {
	cfg := mustParse(t, `
ssp_defaults:
  protocol: http1
  pool: {max_conns: 8, max_dials: 2, dial_backoff: {min: 1s}}
  headers: {pass: [Cookie], remove: [X-A, X-B]}
ssps:
  - {name: plain, endpoints: ["http://127.0.0.1:9000/"]}
  - name: own
    endpoints: ["http://127.0.0.1:9001/"]
    protocol: auto
    pool: {max_conns: 4, dial_backoff: {max: 9s}}
    headers: {remove: []}
routes:
  - {name: default, match: {path: /}, ssps: [plain, own], client_choice: true}
`)
	plain, own := cfg.SSPs[0], cfg.SSPs[1]
	if plain.Protocol != dial.HTTP1 || plain.Pool.MaxConns != 8 || plain.Pool.MaxDials != 2 || plain.Pool.DialBackoff != (Backoff{time.Second, 5 * time.Second}) {
		t.Errorf("plain: %+v", plain)
	}
	testsupport.True(t, own.Protocol == dial.Auto && own.Pool.MaxConns == 4 && own.Pool.MaxDials == 2 && own.Pool.DialBackoff == (Backoff{time.Second, 9 * time.Second}), "own: %+v", own)
	if diff := cmp.Diff(Headers{Pass: []string{"Cookie"}, Remove: []string{"X-A", "X-B"}, Set: []header.NameValue{}}, plain.Headers); diff != "" {
		t.Errorf("plain (-want +got):\n%s", diff)
	}
	diff := cmp.Diff(Headers{Pass: []string{"Cookie"}, Remove: []string{}, Set: []header.NameValue{}}, own.Headers)
	testsupport.True(t, diff == "", "own: a list replaces the default (-want +got):\n%s", diff)
	testsupport.True(t, plain.Pool.MaxIdle == 8 && own.Pool.MaxIdle == 4, "max_idle %d and %d, want each SSP's max_conns", plain.Pool.MaxIdle, own.Pool.MaxIdle)
}

func TestSSPsShareNothing(t *testing.T) {
	cfg := mustParse(t, `
ssp_defaults: {headers: {pass: [Cookie]}}
ssps:
  - {name: a, endpoints: ["http://127.0.0.1:9000/"]}
  - {name: b, endpoints: ["http://127.0.0.1:9001/"]}
routes: [{name: default, match: {path: /}, mode: split, ssps: [a, b]}]
`)
	cfg.SSPs[0].Headers.Pass[0] = "changed"
	testsupport.Equal(t, cfg.SSPs[1].Headers.Pass[0], "Cookie", "the SSPs share a list: %q")
}

func TestMaxIdleAndMaxHTTP2ConnsFollowMaxConns(t *testing.T) {
	for _, c := range []struct {
		pool            string
		maxIdle, http2s int
	}{
		{"{}", 256, 4},
		{"{max_conns: 3}", 3, 3},
		{"{max_conns: 10}", 10, 4},
		{"{max_conns: 10, max_idle: 5, max_http2_conns: 7}", 5, 7},
		{"{max_idle: 0}", 0, 4},
	} {
		cfg := mustParse(t, `
ssps: [{name: a, endpoints: ["http://127.0.0.1:9000/"], pool: `+c.pool+`}]
routes: [{name: default, match: {path: /}, ssps: [a]}]
`)
		if pool := cfg.SSPs[0].Pool; pool.MaxIdle != c.maxIdle || pool.MaxHTTP2Conns != c.http2s {
			t.Errorf("%s: max_idle %d, max_http2_conns %d; want %d, %d", c.pool, pool.MaxIdle, pool.MaxHTTP2Conns, c.maxIdle, c.http2s)
		}
	}
}

func TestWeightIsOneForSplitAndZeroElsewhere(t *testing.T) {
	cfg := mustParse(t, `
ssps:
  - {name: a, endpoints: ["http://127.0.0.1:9000/"]}
  - {name: b, endpoints: ["http://127.0.0.1:9001/"]}
  - {name: c, endpoints: ["http://127.0.0.1:9002/"]}
routes:
  - {name: split, match: {path: /s}, mode: split, ssps: [a, {name: b}, {name: c, weight: 0}]}
  - {name: waterfall, match: {path: /w}, mode: waterfall, ssps: [a, {name: b, timeout: 50ms}]}
`)
	want := [][]RouteSSP{
		{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c"}},
		{{Name: "a"}, {Name: "b", Timeout: 50 * time.Millisecond}},
	}
	for i := range want {
		diff := cmp.Diff(want[i], cfg.Routes[i].SSPs, cmpopts.EquateEmpty())
		testsupport.True(t, diff == "", "routes[%d] (-want +got):\n%s", i, diff)
	}
}

func TestConditionWithoutValueIsPresence(t *testing.T) {
	cfg := mustParse(t, `
ssps: [{name: a, endpoints: ["http://127.0.0.1:9000/"]}]
routes:
  - name: default
    match: {path: /, host: "*.Example.COM", query: [{name: x}, {name: y, value: ""}, {name: z, value: ~}]}
    ssps: [a]
`)
	match := cfg.Routes[0].Match
	testsupport.True(t, match.Query[0].Value == nil && match.Query[2].Value == nil, "an absent or null value must be nil")
	v := match.Query[1].Value
	testsupport.True(t, v != nil && *v == "", `value "" became %v`, v)
	testsupport.Equal(t, match.Host, "*.example.com", "host %q is not in lower case")
}

func TestHostsAreWithoutTheirFinalDot(t *testing.T) {
	cfg := mustParse(t, `
ssps: [{name: a, endpoints: ["http://a.example.:9000/"], host: "Ads.example.:8080"}, {name: b, endpoints: ["http://b.example./"], host: "ads.example."}, {name: c, endpoints: ["http://c.example/"], host: "[::1]:80"}]
routes: [{name: default, match: {path: /, host: "*.Example.COM."}, ssps: [a, b, c], mode: waterfall}]
`)
	testsupport.Equal(t, cfg.Routes[0].Match.Host, "*.example.com", "match.host is %q")
	for i, want := range []string{"Ads.example:8080", "ads.example", "[::1]:80"} {
		testsupport.Equal(t, cfg.SSPs[i].Host, want, "host is %q")
	}
	testsupport.Equal(t, cfg.SSPs[0].Parsed.All[0].Authority, "a.example:9000", "the endpoint's authority is %q")
	testsupport.Equal(t, cfg.SSPs[0].Parsed.All[0].Host, "a.example.", "the name for DNS is %q")
}

func TestKeysWithoutValueAreAbsent(t *testing.T) {
	cfg := mustParse(t, `
server:
  listen:
  drain:
    # delay: 1s
ssp_defaults:
ssps:
  - {name: a, endpoints: ["http://127.0.0.1:9000/"], pool: , protocol: null}
routes: [{name: default, match: {path: /}, ssps: [a]}]
`)
	if cfg.Server.Listen != "127.0.0.1:8080" || cfg.Server.Drain.Delay != 5*time.Second || cfg.SSPs[0].Pool.MaxConns != 256 || cfg.SSPs[0].Protocol != dial.Auto {
		t.Errorf("%s", cfg.YAML())
	}
}

func TestAnchorsAndMergeKeysWork(t *testing.T) {
	cfg := mustParse(t, `
ssps:
  - name: a
    endpoints: ["http://127.0.0.1:9000/"]
    pool: &pool {max_conns: 8, max_dials: 2}
    timeouts: &slow {connect: 1s}
  - name: b
    endpoints: ["http://127.0.0.1:9001/"]
    pool: {<<: *pool, max_dials: 3}
    timeouts: {<<: [*slow, {connect: 2s, request: 3s}]}
routes: [{name: default, match: {path: /}, mode: split, ssps: [a, b]}]
`)
	a, b := cfg.SSPs[0], cfg.SSPs[1]
	testsupport.True(t, a.Pool.MaxDials == 2 && b.Pool.MaxConns == 8 && b.Pool.MaxDials == 3, "a %+v\nb %+v", a.Pool, b.Pool)
	testsupport.True(t, b.Timeouts.Connect == time.Second && b.Timeouts.Request == 3*time.Second, "the first mapping must win: %+v", b.Timeouts)
}

func TestManySSPsWithEveryKeyFit(t *testing.T) {
	var b strings.Builder
	b.WriteString("ssps:\n")
	settings := string(mustParse(t, twoSSPs).YAMLWithSecrets())
	_, settings, _ = strings.Cut(settings, "\n    protocol:")
	settings, _, _ = strings.Cut(settings, "  - name:")
	for i := range 200 {
		b.WriteString("  - name: s" + strconv.Itoa(i) + "\n    endpoints: [\"http://127.0.0.1:9000/\"]\n    protocol:" + settings)
	}
	b.WriteString("routes: [{name: default, match: {path: /}, ssps: [s199]}]\n")
	cfg := mustParse(t, b.String())
	testsupport.True(t, len(cfg.SSPs) == 200 && cfg.SSPs[199].Pool.MaxConns == 64, "%d SSPs", len(cfg.SSPs))
}
