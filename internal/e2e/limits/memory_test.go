//go:build !race

package limits

import (
	"net"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// idleClients are how many connections are opened. The test process and adbuffer need one open file
// for each.
const idleClients = 10_000

// resident returns the resident memory of the process, in bytes.
func resident(ab *e2e.Process) float64 {
	ab.T.Helper()
	return ab.Metric("process_resident_memory_bytes")
}

// collected is resident after a garbage collection.
func collected(ab *e2e.Process) float64 {
	ab.T.Helper()
	ab.AskAdmin("/debug/pprof/heap?gc=1")
	return resident(ab)
}

// awaitIdle waits until each of n clients takes at most ceiling bytes more than before. adbuffer
// returns memory to the system by itself, soon after it has become idle.
func awaitIdle(ab *e2e.Process, before float64, n int, ceiling float64) {
	ab.T.Helper()
	each := func() float64 { return (resident(ab) - before) / float64(n) }
	began := time.Now()
	soon := each()
	late := soon
	for ; late > ceiling && time.Since(began) < testsupport.Patience; late = each() {
		time.Sleep(500 * time.Millisecond)
	}
	ab.T.Logf("%.0f bytes for each of %d idle clients at once, %.0f after %v", soon, n, late, time.Since(began).Round(time.Second/2))
	if late > ceiling {
		ab.T.Errorf("%.0f bytes for each idle client, want at most %.0f", late, ceiling)
	}
}

// Each client has sent a request with a 300-byte URL and has its response.
func TestMemoryOfIdleClients(t *testing.T) {
	testsupport.Long(t)
	for _, row := range []struct {
		name    string
		setting string
		ceiling float64 // bytes for each client
	}{
		{"by default", "", 2 << 10},
		{"with reduce_idle_memory", "reduce_idle_memory: true, ", 2 << 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := e2e.StartSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Response: sspsim.Response{Size: sspsim.Size{Constant: 1024}}}})
			ab := e2e.Start(t, "server: {"+row.setting+"idle_timeout: 10m, max_connections: 19000}\n"+e2e.Single(s.URL()))
			ab.Concurrently(64, func(w *e2e.Worker) error { // buffers and pools are as in service
				for range 50 {
					if _, err := w.Exchange("GET", "/fillbuffer", ""); err != nil {
						return err
					}
				}
				return nil
			})
			ab.AwaitMetric(0, "adbuffer_client_connections")
			before := collected(ab)
			conns := make([]net.Conn, 0, idleClients)
			defer func() {
				for _, c := range conns {
					c.Close()
				}
			}()
			raw := e2e.Request("GET", "/fillbuffer?"+strings.Repeat("pub=1&slot", 30), "", "User-Agent: Mozilla/5.0 (Linux; Android 14)", "Accept: */*")
			response := make([]byte, 4096)
			for range idleClients {
				c, err := net.Dial(ab.Network, ab.TrafficAddr)
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
				if _, err := c.Write([]byte(raw)); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(response); err != nil {
					t.Fatal(err)
				}
			}
			ab.WantMetric(idleClients, "adbuffer_client_connections")
			awaitIdle(ab, before, idleClients, row.ceiling)
		})
	}
}
