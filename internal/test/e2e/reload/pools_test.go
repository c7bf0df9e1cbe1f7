package reload

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// pair is a configuration of two SSPs, each with its settings in flow style, on routes with their
// names.
func pair(a, b string) string {
	var s strings.Builder
	s.WriteString("ssps:\n")
	routes := "routes:\n"
	for name, settings := range map[string]string{"a": a, "b": b} {
		if settings != "" {
			fmt.Fprintf(&s, "  - {name: %s, %s}\n", name, settings)
			routes += fmt.Sprintf("  - {name: %s, match: {path: /%s}, ssps: [%s]}\n", name, name, name)
		}
	}
	return s.String() + routes
}

func at(s *sspsim.SSP, settings ...string) string {
	return strings.Join(append([]string{fmt.Sprintf("endpoints: [%q]", s.URL())}, settings...), ", ")
}

func TestAnSSPThatDidNotChangeKeepsItsSocketsAndCounters(t *testing.T) {
	t.Parallel()
	a, b, other := e2e.Healthy(t), e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, pair(at(a), at(b)))
	steps := []struct{ what, config string }{
		{"the first configuration again", ""},
		{"another limit of b", pair(at(a), at(b, "pool: {max_conns: 5}"))},
		{"another endpoint of b", pair(at(a), at(other))},
		{"other routes, server and deadline", "server: {max_in_flight: 100}\ndeadline: {reserve: 6ms}\n" + pair(at(a), at(other)) + "  - {name: more, match: {path: /more}, ssps: [a, b], mode: parallel-all}\n"},
		{"b is gone", pair(at(a), "")},
		{"b is back", pair(at(a), at(b))},
	}
	for i, s := range steps {
		if s.config != "" {
			ab.Take(s.config)
		}
		ab.Get("/a").WantFill("a")
		n := float64(i + 1)
		m := ab.Scrape()
		testsupport.Equal(t, m.Value("adbuffer_ssp_requests_total", "ssp=a", "outcome=fill"), n, "%[2]s: %[1]v requests are counted", s.what)
		testsupport.Equal(t, m.Value("adbuffer_pool_hold_seconds_count", "ssp=a"), n, "%[2]s: %[1]v places were held", s.what)
		testsupport.Equal(t, m.Value("adbuffer_pool_connections_opened_total", "ssp=a", "protocol=http1"), 1, "%[2]s: %[1]v connections were opened", s.what)
	}
	testsupport.Equal(t, a.Counters().Connections, 1, "the SSP accepted %d connections")
}
