package admin

import (
	"os/exec"
	"path/filepath"
	"testing"

	"adbuffer/internal/testsupport"
)

const rulesDir = "../../../deploy/prometheus"

// promtool runs promtool in the rules' folder. The Debian package prometheus contains it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(testsupport.Needs(t, "prometheus", "promtool"), args...)
	cmd.Dir = rulesDir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// files returns the names in the rules' folder that match.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(rulesDir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	promtool(t, append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, files(t, "*.rules.yml")...)...)
	promtool(t, "check", "config", "prometheus.yml")
}

func TestRulesFireAsTheirTestsSay(t *testing.T) {
	t.Parallel()
	promtool(t, append([]string{"test", "rules"}, files(t, "*_test.yaml")...)...)
}
