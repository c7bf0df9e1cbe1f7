package sizing

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/capacity"
	"adbuffer/internal/config"
	"adbuffer/internal/pool"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// regions is a configuration of two SSPs; the second has three priorities.
func regions(t *testing.T, settings string) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(`
ssps:
  - {name: one, endpoints: ["http://127.0.0.1:1/bid"]}
  - name: openx
    endpoints:
      - "http://127.0.0.1:1/bid"
      - {url: "http://127.0.0.1:2/bid", priority: 1}
      - {url: "http://127.0.0.1:3/bid", priority: 1}
      - {url: "http://127.0.0.1:4/bid", priority: 7}
    `+settings+`
routes: [{name: default, match: {path: /a}, mode: waterfall, ssps: [openx, one]}]
`), nil)
	testsupport.NoError(t, err)
	return cfg
}

func wantWarnings(t *testing.T, got []config.Warning, want ...[]string) {
	t.Helper()
	testsupport.MustEqual(t, len(got), len(want), "%d warnings: %v", got)
	for i, w := range got {
		testsupport.Equal(t, w.Path, "ssps[1].endpoints", "a warning about %s")
		wantText(t, w.Text, want[i]...)
	}
}

// Each group after the best one needs the connections that plan expects for the same load.
func TestGroupsAreHeldToThePlan(t *testing.T) {
	in := Input{PlanInput: capacity.DefaultPlanInput()}
	in.Rate, in.P50, in.P99, in.Replicas = 20000, 80*time.Millisecond, 250*time.Millisecond, 12
	for _, c := range []struct {
		settings string
		want     [][]string
	}{
		{"pool: {max_conns: 176}", nil}, // plan's result for these numbers
		{"pool: {max_conns: 175}", [][]string{
			{"priority 1 (2 endpoints)", "175 connections", "plan expects 176", "1,667 requests/s", "pool.max_conns"},
			{"priority 7 (1 endpoint)", "175 connections", "pool.max_conns"},
		}},
		{"protocol: h2c\n    pool: {max_http2_conns: 2}", [][]string{{"2 connections", "plan expects 4", "pool.max_http2_conns"}, {"priority 7"}}},
		{"protocol: h2c\n    pool: {max_http2_conns: 4}", nil},
	} {
		got, err := GroupWarningsFor(regions(t, c.settings), in)
		testsupport.NoError(t, err)
		wantWarnings(t, got, c.want...)
	}
	in.Rate, in.Replicas = 1e6, 2 // 45,000 places: more than the ports of one endpoint
	got, err := GroupWarningsFor(regions(t, "pool: {max_conns: 65536}"), in)
	testsupport.NoError(t, err)
	wantWarnings(t, got, []string{"priority 7 (1 endpoint)", "25,665 connections", "source_addresses"})
	in.SSP = "one"
	if got, err := GroupWarningsFor(regions(t, "pool: {max_conns: 1}"), in); err != nil || len(got) > 0 {
		t.Errorf("an SSP with one group: %v, %v", got, err)
	}
	in.P99 = 0
	if _, err := GroupWarningsFor(regions(t, ""), in); err == nil || !strings.Contains(err.Error(), "--p99") {
		t.Errorf("without --p99: %v", err)
	}
}

// The load of a running adbuffer's last minute is the load that the groups must carry.
func TestGroupsAreHeldToTheObservedLoad(t *testing.T) {
	s := &pool.Snapshot{Protocol: upstream.HTTP1, Need: pool.Need{ArrivalsPerSecond: 1000, HoldSeconds: 0.15}}
	all := []Observation{ObservePool(s, &pool.Options{SSP: "openx", MaxConns: 1})}
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 100}"), all),
		[]string{"priority 1", "100 connections", "1,000 requests/s × 150 ms", "pool.max_conns"}, []string{"priority 7"})
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 1000}"), all))
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 1}"), nil))
	s.Need.ArrivalsPerSecond = 0
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 1}"), []Observation{ObservePool(s, &pool.Options{SSP: "openx"})}))
}
