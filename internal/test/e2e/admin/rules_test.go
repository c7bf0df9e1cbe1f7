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

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

const rulesDir = "../../../../deploy/prometheus"

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
	testsupport.MustTrue(t, err == nil && len(found) != 0, "no %s: %v", pattern, err)
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
		testsupport.NoError(t, err)
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
	testsupport.AtLeast(t, n, 20, "%d alerts")
}

// outcomesOf returns the n-th list of outcomes of a recording rule, sorted.
func outcomesOf(t *testing.T, rule string, n int) []string {
	t.Helper()
	rules, err := os.ReadFile(rulesDir + "/recording.rules.yml")
	testsupport.NoError(t, err)
	_, text, _ := strings.Cut(string(rules), "record: "+rule+"\n")
	list := strings.Split(regexp.MustCompile(`outcome[=!]~"([a-z_|]+)"`).FindAllStringSubmatch(text, n+1)[n][1], "|")
	slices.Sort(list)
	return list
}

// outcomesThat returns the names of outcomes, sorted.
func outcomesThat(is func(exchange.Outcome) bool) (names []string) {
	for o := range exchange.Outcomes {
		if is(o) {
			names = append(names, o.String())
		}
	}
	slices.Sort(names)
	return names
}

func TestRulesCountAllOutcomesOfTheirKind(t *testing.T) {
	t.Parallel()
	failed := func(o exchange.Outcome) bool { return o.Row().Blame == exchange.BlameSSP }
	for _, window := range []string{"5m", "45s"} {
		for _, row := range []struct {
			rule string
			list int
			is   func(exchange.Outcome) bool
		}{
			{"instance_ssp:adbuffer_ssp_failures:ratio", 0, failed},
			{"instance_ssp:adbuffer_ssp_failures:ratio", 1, func(o exchange.Outcome) bool { return failed(o) || o.HasResponse() }},
			{"instance_ssp:adbuffer_pending_full:ratio", 0, exchange.Outcome.NotAsked},
			{"route:adbuffer_own_no_ad:ratio", 0, exchange.Outcome.NotAsked},
			{"route:adbuffer_own_no_ad:ratio", 1, func(o exchange.Outcome) bool {
				return o.Row().Ends&exchange.Routed != 0 && o.Row().Status >= 500 && o != exchange.ClientGone
			}},
		} {
			if got, want := outcomesOf(t, row.rule+window, row.list), outcomesThat(row.is); !slices.Equal(got, want) {
				t.Errorf("list %d of %s%s has %v, want %v", row.list, row.rule, window, got, want)
			}
		}
	}
}
