package admin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
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

func TestTheShareOfFailuresCountsTheOutcomesThatBlameTheSSP(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(rulesDir + "/recording.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(rules), "record: instance_ssp:adbuffer_ssp_failures:ratio5m\n")
	var failed, got []string
	for o := range upstream.Outcomes {
		if o.Row().Blame == upstream.BlameSSP {
			failed = append(failed, o.String())
		}
		if o.Row().Blame == upstream.BlameSSP || o.HasResponse() {
			got = append(got, o.String())
		}
	}
	lists := regexp.MustCompile(`outcome=~"([a-z_|]+)"`).FindAllStringSubmatch(rule, 2)
	for i, want := range [][]string{failed, got} {
		list := strings.Split(lists[i][1], "|")
		slices.Sort(list)
		slices.Sort(want)
		if !slices.Equal(list, want) {
			t.Errorf("list %d of the rule has %v, want %v", i, list, want)
		}
	}
}
