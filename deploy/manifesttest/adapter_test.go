package manifesttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"adbuffer/internal/test/testsupport"
)

const (
	adapterRules  = "../kubernetes/prometheus-adapter/rules.yaml"
	adapterMetric = "adbuffer_pool_saturation_ratio"
)

// adapterConfig is the part of the Prometheus adapter's configuration that holds rules.
type adapterConfig struct {
	Rules []struct {
		SeriesQuery string `json:"seriesQuery"`
		Resources   struct {
			Overrides map[string]struct {
				Resource string `json:"resource"`
			} `json:"overrides"`
		} `json:"resources"`
		Name struct {
			Matches string `json:"matches"`
			As      string `json:"as"`
		} `json:"name"`
		MetricsQuery string `json:"metricsQuery"`
	} `json:"rules"`
}

// adapterQuery returns the query that the adapter sends to Prometheus for the pods of a namespace.
func adapterQuery(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(adapterRules)
	testsupport.NoError(t, err)
	var c adapterConfig
	testsupport.NoError(t, yaml.UnmarshalStrict(b, &c))
	testsupport.MustEqual(t, len(c.Rules), 1, "%d rules")
	r := c.Rules[0]
	if r.Name.As != adapterMetric || r.Name.Matches != "^"+adapterMetric+"$" || !strings.HasPrefix(r.SeriesQuery, adapterMetric+"{") {
		t.Fatalf("series %s, called %s: the autoscaler asks for %s", r.SeriesQuery, r.Name.As, adapterMetric)
	}
	for _, label := range []string{"namespace", "pod"} {
		testsupport.True(t, r.Resources.Overrides[label].Resource == label && strings.Contains(r.SeriesQuery, label+`!=""`), "label %s is not the resource", label)
	}
	query, err := template.New("").Delims("<<", ">>").Option("missingkey=error").Parse(r.MetricsQuery)
	testsupport.NoError(t, err)
	var text strings.Builder
	err = query.Execute(&text, map[string]string{"Series": adapterMetric, "LabelMatchers": `namespace="ads",pod=~"a|b|c"`, "GroupBy": "pod"})
	testsupport.NoError(t, err)
	return text.String()
}

// Pod a is full at one SSP only. Pod b has a full pool too, but its breaker sheds. Pod c is idle. Pod
// d belongs to another namespace.
func TestAPodIsAsFullAsItsFullestHealthyPool(t *testing.T) {
	const rules = `
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'adbuffer_pool_saturation_ratio{namespace="ads",pod="a",ssp="x"}', values: '0.9x20'}
      - {series: 'adbuffer_pool_saturation_ratio{namespace="ads",pod="a",ssp="y"}', values: '0.1x20'}
      - {series: 'adbuffer_pool_saturation_ratio{namespace="ads",pod="b",ssp="x"}', values: '0.3x20'}
      - {series: 'adbuffer_pool_saturation_ratio{namespace="ads",pod="b",ssp="y"}', values: '1x20'}
      - {series: 'adbuffer_pool_saturation_ratio{namespace="ads",pod="c",ssp="x"}', values: '0x20'}
      - {series: 'adbuffer_pool_saturation_ratio{namespace="other",pod="a",ssp="x"}', values: '1x20'}
      - {series: 'adbuffer_breaker_shed_ratio{namespace="ads",pod="a",ssp="x"}', values: '0x20'}
      - {series: 'adbuffer_breaker_shed_ratio{namespace="ads",pod="b",ssp="x"}', values: '0x20'}
      - {series: 'adbuffer_breaker_shed_ratio{namespace="ads",pod="b",ssp="y"}', values: '0.4x20'}
    promql_expr_test:
      - expr: %q
        eval_time: 5m
        exp_samples:
          - {labels: '{pod="a"}', value: 0.9}
          - {labels: '{pod="b"}', value: 0.3}
          - {labels: '{pod="c"}', value: 0}
`
	file := filepath.Join(t.TempDir(), "rules_test.yaml")
	testsupport.NoError(t, os.WriteFile(file, fmt.Appendf(nil, rules, adapterQuery(t)), 0o600))
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
