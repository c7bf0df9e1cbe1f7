package admin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

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

// Each alert has a test in which it does not fire before the fault has lasted, fires then, and does not
// fire once the fault is over.
func TestEachAlertIsTestedBeforeDuringAndAfterItsFault(t *testing.T) {
	t.Parallel()
	read := func(file string, v any) {
		b, err := os.ReadFile(filepath.Join(rulesDir, file))
		if err == nil {
			err = yaml.Unmarshal(b, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	phases := map[string]string{} // by alert: - and + for each evaluation without and with the alert
	for _, file := range files(t, "rules*_test.yaml") {
		var tests struct {
			Tests []struct {
				Evaluations []struct {
					Alert    string `yaml:"alertname"`
					Expected []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		read(file, &tests)
		for _, one := range tests.Tests {
			for _, e := range one.Evaluations {
				phases[e.Alert] += map[bool]string{false: "-", true: "+"}[len(e.Expected) > 0]
			}
		}
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	read("alerts.rules.yml", &rules)
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if n++; !strings.Contains(strings.ReplaceAll(phases[r.Alert], "++", "+"), "-+-") {
				t.Errorf("the tests of %s are %q, want one before, during and after", r.Alert, phases[r.Alert])
			}
		}
	}
	if n < 20 {
		t.Errorf("%d alerts", n)
	}
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
