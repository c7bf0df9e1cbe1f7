package endpoints

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// sick holds the ways in which an endpoint fails. In all ways but the first, it still accepts connections.
var sick = map[string]sspsim.Behaviour{
	"refuses":      {Faults: sspsim.Faults{Refuse: true, Reset: sspsim.Always}},
	"responds 500": fails,
	"hangs":        {Faults: sspsim.Faults{Stall: sspsim.Always}},
}

// spare is a configuration of openx with two endpoints, and one that serves only if they cannot.
func spare(a, b, third *sspsim.SSP, settings string) string {
	return fmt.Sprintf(`
deadline: {default: 200ms}
ssps:
  - name: openx
    endpoints: [%q, %q, {url: %q, priority: 1}]
%s
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, a.URL(), b.URL(), third.URL(), settings)
}

// filled sends n requests over ten connections, and returns how many got an ad.
func filled(ab *e2e.Process, n int) int {
	var left, fills atomic.Int64
	left.Store(int64(n))
	ab.Concurrently(10, func(w *e2e.Worker) error {
		for left.Add(-1) >= 0 {
			r, err := w.Exchange("GET", "/fillbuffer", "")
			if err != nil {
				return err
			}
			if r.Status == 200 {
				fills.Add(1)
			}
		}
		return nil
	})
	return int(fills.Load())
}

// All endpoints of priority 0 fail. The endpoint of priority 1 takes over,
// although max_ejected is half of the endpoints. No request to it is shed for the failures of the
// others. When the others work again, they get the requests back.
func TestSpareTakesOverFromEndpointsThatFail(t *testing.T) {
	for name, illness := range sick {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, third := e2e.SSPWith(t, illness), e2e.SSPWith(t, illness), e2e.Healthy(t)
			ab := e2e.Start(t, spare(a, b, third, "    ejection: {base_time: 1s}"))
			began := time.Now()
			testsupport.Eventually(t, "99 % of the requests are served", func() bool { return filled(ab, 200) >= 198 })
			t.Logf("the spare served 99 %% of the requests after %v", time.Since(began).Round(time.Millisecond))
			if !illness.Faults.Refuse {
				for _, s := range []*sspsim.SSP{a, b} {
					ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+s.Addr(), "state=ejected")
				}
			}
			ab.WantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx")

			e2e.SetBehaviour(t, a, sspsim.Behaviour{})
			e2e.SetBehaviour(t, b, sspsim.Behaviour{})
			repaired := time.Now()
			testsupport.Eventually(t, "the first endpoints get all requests again", func() bool {
				before := ab.Metric("adbuffer_endpoint_requests_total", "endpoint="+third.Addr(), "outcome=fill")
				return filled(ab, 100) == 100 && ab.Metric("adbuffer_endpoint_requests_total", "endpoint="+third.Addr(), "outcome=fill") == before
			})
			t.Logf("they got them %v after they worked again", time.Since(repaired).Round(time.Millisecond))
		})
	}
}
