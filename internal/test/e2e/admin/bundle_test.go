package admin

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestABundleHasAllPartsAndNoSecret(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
admin: {capture: true}
ssps:
  - {name: openx, endpoints: ["%s?key=s3cret-1"], headers: {set: [{name: X-Partner, value: s3cret-2}]}}
routes:
  - {name: default, match: {path: /fillbuffer, query: [{name: api_key, value: s3cret-3}]}, ssps: [openx]}
`, s.URL()))
	y := ab.StartTraffic(1, 0, "/fillbuffer?api_key=s3cret-3&pub=")
	file := filepath.Join(t.TempDir(), "bundle.zip")
	out, stderr, code := e2e.Run(t, nil, "bundle", "--admin", "http://"+ab.AdminAddr, "--seconds", "1", "--capture", "openx", "--out", file)
	y.Stop()
	testsupport.MustTrue(t, code == 0 && strings.Contains(out, "11 parts"), "%d %s %s", code, out, stderr)
	parts := testsupport.ReadZip(t, file)
	for name, content := range parts {
		testsupport.True(t, !strings.Contains(content, "s3cret"), "%s holds a secret", name)
	}
	for name, want := range map[string]string{
		"config.yaml": "openx", "pools.json": "config_hash", "ssps.json": "openx", "history.json": "step_seconds", "failures.json": "failures", "metrics.txt": "adbuffer_requests_total",
		"goroutines.txt": "goroutine ", "heap.pprof": "\x1f\x8b", "cpu.pprof": "\x1f\x8b", "trace.out": "go 1.", "capture-openx.json": `"exchanges"`,
	} {
		testsupport.True(t, strings.Contains(parts[name], want), "%s has no %q: %.200q", name, want, parts[name])
	}
}
