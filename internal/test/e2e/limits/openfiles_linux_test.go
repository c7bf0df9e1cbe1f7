package limits

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// limitFiles makes the running process fail to open a file whose number would be n or more.
func limitFiles(ab *e2e.Process, n uint64) {
	ab.T.Helper()
	testsupport.NoError(ab.T, unix.Prlimit(ab.Cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: 20000}, nil))
}

// lastSocket returns the highest number of a socket that the process has open.
func lastSocket(ab *e2e.Process) (last uint64) {
	ab.T.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", ab.Cmd.Process.Pid)
	open, err := os.ReadDir(dir)
	testsupport.NoError(ab.T, err)
	for _, e := range open {
		n, err := strconv.ParseUint(e.Name(), 10, 64)
		if file, _ := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(file, "socket:") {
			last = max(last, n)
		}
	}
	return last
}

// If adbuffer has no descriptor left for a connection to an SSP, the requests must not end as connect_failed: the
// addresses would back off, the endpoint would be ejected, and the breaker would open.
func TestNoSSPIsBlamedWhileAdbufferHasNoOpenFileLeft(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - name: openx
    endpoints: [%q, %q]
    breaker: {min_requests: 1}
    ejection: {consecutive: 1, base_time: 1m}
    pool: {dial_backoff: {min: 1m, max: 1m}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [openx]}
`, e2e.Healthy(t).URL(), e2e.Healthy(t).URL()))
	c := ab.Dial()
	c.Get("/no-such-route").WantStatus("before", 404)
	limitFiles(ab, 0)
	for range 20 {
		r := c.Get("/fillbuffer").WantStatus("without files", 503).WantSource("proxy/local_error")
		for _, name := range []string{"too many open files", "ulimit -n"} {
			if e := e2e.ErrorOf(r); !strings.Contains(e.Detail, name) {
				t.Fatalf("the error %q does not name %q", e.Detail, name)
			}
		}
	}
	limitFiles(ab, 20000)
	for range 20 {
		c.Get("/fillbuffer").WantStatus("as soon as files are free again", 200)
	}
	m := ab.Scrape()
	dials := m.Sum("adbuffer_pool_dial_errors_total")
	if local := m.Sum("adbuffer_pool_dial_errors_total", "kind=local"); local == 0 || local != dials || local > 60 {
		t.Errorf("%v of %v failed dials count as local", local, dials)
	}
	for _, zero := range []string{"adbuffer_endpoint_ejections_total", "adbuffer_breaker_shed_ratio", "adbuffer_retries_total"} {
		testsupport.Equal(t, m.Sum(zero), 0, "%[2]s is %[1]v", zero)
	}
	testsupport.Equal(t, m.Sum("adbuffer_endpoint_state", "state=enabled"), 2, "%v endpoints are enabled")
}

// Idle clients must not hold descriptors that a request needs for its connection, or a new client for its own.
func TestTheClientThatIsIdleForLongestMakesRoomForDialsAndClients(t *testing.T) {
	t.Parallel()
	const idle, others = 20, 10
	ab := e2e.Start(t, e2e.Single(e2e.Healthy(t).URL(), "pool: {max_idle: 0}"))
	var all []*e2e.Client
	for range idle {
		all = append(all, ab.Dial())
		all[len(all)-1].Get("/no-such-route").WantStatus("before", 404)
	}
	limitFiles(ab, lastSocket(ab)+1)
	for range others {
		c := ab.Dial()
		testsupport.Eventually(t, "a request is served", func() bool { return c.Get("/fillbuffer").Status == 200 }) // an idle client is parked after a while
	}
	all[0].WantClosed()
	limitFiles(ab, 20000)
	ab.AwaitMetricAbove(others/2, "adbuffer_clients_dropped_total", "reason=idle")
	ab.WantMetric(0, "adbuffer_accept_errors_total", "listener=admin")
	all[idle-1].Get("/fillbuffer").WantFill("openx")
}
