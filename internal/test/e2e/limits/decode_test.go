//go:build !race

package limits

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// Eight clients send nothing but gzip that takes 64 ms to decode. Without turns for decoders, the overload gate
// refuses 99 of 100 plain requests of others.
func TestBodiesThatAreCostlyToDecodeDelayNoPlainRequests(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
server: {overload: {enabled: true}}
deadline: {default: 300ms}
ssps: [{name: a, endpoints: [%q]}]
routes: [{name: a, match: {path: "/*"}, ssps: [a], privacy: truncate_ip}]
`, e2e.Healthy(t).URL()))
	costly := string(testsupport.GzipOfTables(256 << 10))
	var ended atomic.Bool
	var flood, others e2e.Tally
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		ab.Concurrently(8, func(w *e2e.Worker) error {
			for !ended.Load() {
				a, err := w.Exchange("POST", "/", costly, "Content-Encoding: gzip")
				if err != nil {
					return err
				}
				flood.Add(a)
				if a.Status == 503 && strings.Contains(a.Body, "server.background_cpu") {
					flood.AddAs("waited for its turn until its deadline")
				}
			}
			return nil
		})
	}()
	ab.AwaitMetricAbove(0.5, "adbuffer_background_cpu_seconds_total", "work=decode")
	ab.Concurrently(1, func(w *e2e.Worker) error {
		for range 50 {
			a, err := w.Exchange("POST", "/", `{"id":"1"}`)
			if err != nil {
				return err
			}
			others.Add(a)
			time.Sleep(10 * time.Millisecond) // so that the gate sees several windows
		}
		return nil
	})
	ended.Store(true)
	<-flooded
	testsupport.True(t, others.Of("ssp/a 200") >= 25, "others: %v, want 25 of 50 to be served at least; flood: %v", &others, &flood)
	testsupport.True(t, flood.Of("waited for its turn until its deadline") > 0, "no body of the flood waited until its deadline: %v", &flood)
}
