package admin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// quickRules is a copy of the rules whose alerts start and end within seconds.
func quickRules(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"recording.rules.yml", "alerts.rules.yml"} {
		b, err := os.ReadFile(filepath.Join(rulesDir, name))
		testsupport.NoError(t, err)
		b = regexp.MustCompile(`(?m)^(\s+for:).*$`).ReplaceAll(b, []byte("$1 1s"))
		b = regexp.MustCompile(`avg_over_time\((\w+)\[[15]m\]\)`).ReplaceAll(b, []byte("avg_over_time($1[10s])"))
		testsupport.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	return dir
}

// The script testdata/newcomer uses only README.md and the runbook. It gets from the alert
// "saturation over 0.95" to the changed setting.
func TestANewcomerFindsTheWayFromTheAlertToTheSetting(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(100 * time.Millisecond)})
	ab := e2e.Start(t, e2e.Single(s.URL(), "pool:", "  max_conns: 4"))
	p := startPrometheus(t, ab, prometheusOptions{rules: quickRules(t)})

	// 30 clients would send 60 requests a second; 4 connections carry 40.
	ab.StartTraffic(30, 400*time.Millisecond, "/fillbuffer?n=")
	script, err := filepath.Abs("testdata/newcomer")
	testsupport.NoError(t, err)
	cmd := exec.Command(script, "../../../..", p.url, "http://"+ab.AdminAddr, ab.File)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(e2e.Binary(t))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	testsupport.MustTrue(t, err == nil, "%v\n%s", err, out)
	t.Logf("%s", out)
	if b, err := os.ReadFile(ab.File); err != nil || strings.Contains(string(b), "max_conns: 4\n") {
		t.Errorf("the setting has not changed: %v\n%s", err, b)
	}
}
