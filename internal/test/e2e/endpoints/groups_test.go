package endpoints

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A warning names endpoints that could not carry the load without the other endpoints. check gives
// it, with the numbers of plan or of a running adbuffer, and so does a reload.
func TestGroupsThatCannotCarryTheLoadAreNamed(t *testing.T) {
	t.Parallel()
	a, b := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(50 * time.Millisecond)}), e2e.Healthy(t)
	text := func(conns int) string {
		return fmt.Sprintf(`
ssps:
  - name: openx
    endpoints: [%q, {url: %q, priority: 1}]
    pool: {max_conns: %d}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, a.URL(), b.URL(), conns)
	}
	file := filepath.Join(t.TempDir(), "small.yaml")
	testsupport.NoError(t, os.WriteFile(file, []byte(text(1)), 0o600))
	check := func(wantCode int, wantWarning bool, args ...string) {
		t.Helper()
		out, log, code := e2e.Run(t, nil, append([]string{"check", "--config", file, "--quiet"}, args...)...)
		if warned := strings.Contains(out, "priority 1 (1 endpoint) can hold 1 connection, and plan expects"); code != wantCode || warned != wantWarning {
			t.Errorf("check %v: exit status %d, warned %v, want %v\n%s%s", args, code, warned, wantWarning, out, log)
		}
	}
	check(0, false)

	ab := e2e.Start(t, text(100))
	check(0, false, "--admin", "http://"+ab.AdminAddr) // no load
	y := ab.StartTraffic(8, 0, "/fillbuffer?n=")
	testsupport.Eventually(t, "the pool has measured its load", func() bool {
		return ab.Metric("adbuffer_pool_advised_connections") > 1
	})
	check(0, true, "--admin", "http://"+ab.AdminAddr)
	ab.Take(text(1))
	ab.WantLogged("configuration", "path=ssps[0].endpoints", "warning=priority 1 (1 endpoint) can hold 1 connection")
	y.Stop()
}
