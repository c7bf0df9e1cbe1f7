package advice

import (
	"testing"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
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
	// 1,000 requests/s × 150.4 ms are 150 places, for which plan expects 176 connections over HTTP/1.
	load := func(rate float64, protocol exchange.Protocol) []Observation {
		s := &pool.Snapshot{Protocol: protocol, Need: pool.Need{ArrivalsPerSecond: rate, HoldSeconds: 0.1504}}
		return []Observation{ObservePool(s, &pool.Options{SSP: "openx", MaxConns: 1, MaxStreams: 100})}
	}
	for _, c := range []struct {
		settings string
		protocol exchange.Protocol
		want     [][]string
	}{
		{"pool: {max_conns: 176}", exchange.HTTP1, nil},
		{"pool: {max_conns: 175}", exchange.HTTP1, [][]string{
			{"priority 1 (2 endpoints)", "175 connections", "plan expects 176", "1,000 requests/s", "pool.max_conns"},
			{"priority 7 (1 endpoint)", "175 connections", "pool.max_conns"},
		}},
		{"protocol: h2c\n    pool: {max_http2_conns: 1}", exchange.HTTP2, [][]string{{"1 connection", "plan expects 4", "pool.max_http2_conns"}, {"priority 7"}}},
		{"protocol: h2c\n    pool: {max_http2_conns: 4}", exchange.HTTP2, nil},
	} {
		wantWarnings(t, GroupWarnings(regions(t, c.settings), load(1000, c.protocol)), c.want...)
	}
	// 37,500 places are more than the ports of one endpoint.
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 65536}"), load(250_000, exchange.HTTP1)), []string{"priority 7 (1 endpoint)", "25,665 connections", "source_addresses"})
}

// The load of a running adbuffer's last minute is the load that the groups must carry.
func TestGroupsAreHeldToTheObservedLoad(t *testing.T) {
	s := &pool.Snapshot{Protocol: exchange.HTTP1, Need: pool.Need{ArrivalsPerSecond: 1000, HoldSeconds: 0.15}}
	all := []Observation{ObservePool(s, &pool.Options{SSP: "openx", MaxConns: 1})}
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 100}"), all),
		[]string{"priority 1", "100 connections", "1,000 requests/s × 150 ms", "pool.max_conns"}, []string{"priority 7"})
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 1000}"), all))
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 1}"), nil))
	s.Need.ArrivalsPerSecond = 0
	wantWarnings(t, GroupWarnings(regions(t, "pool: {max_conns: 1}"), []Observation{ObservePool(s, &pool.Options{SSP: "openx"})}))
}
