package manifesttest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"

	"adbuffer/internal/test/testsupport"
)

const (
	chartDir       = "../helm/adbuffer"
	applicationDir = "../helm/example-application"
)

// everySet returns every shipped set of manifests by its source: the rendered examples, and the chart
// with each of testdata's values.
func everySet(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"edge.yaml": page(t, "../kubernetes/edge.yaml"), "sidecar.yaml": page(t, "../kubernetes/sidecar.yaml")}
	files, err := filepath.Glob("testdata/values-*.yaml")
	testsupport.NoError(t, err)
	testsupport.MustTrue(t, len(files) >= 4, "%d values files: some are not where they were", len(files))
	for _, f := range files {
		all[filepath.Base(f)] = mustRenderChart(t, values(t, f))
	}
	return all
}

var update = flag.Bool("update", false, "rewrite the rendered examples in deploy/kubernetes")

// The examples in deploy/kubernetes are what Helm makes of the charts.
func TestTheRenderedExamplesAreThoseOfTheCharts(t *testing.T) {
	for file, text := range map[string]string{
		"../kubernetes/edge.yaml":    mustRenderChart(t, values(t, "../kubernetes/edge-values.yaml")),
		"../kubernetes/sidecar.yaml": renderApplication(t),
	} {
		if *update {
			testsupport.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		testsupport.True(t, page(t, file) == text, "%s is not what its chart makes; run go test . -run RenderedExamples -update", file)
	}
}

func values(t *testing.T, file string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile(file)
	testsupport.NoError(t, err)
	return v
}

// renderChart does what `helm template` does, with the check of the schema.
func renderChart(v map[string]any) (text, notes string, err error) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return "", "", err
	}
	return render(c, v)
}

func mustRenderChart(t *testing.T, v map[string]any) string {
	t.Helper()
	text, _, err := renderChart(v)
	testsupport.NoError(t, err)
	return text
}

// loadApplication loads the chart that depends on adbuffer's chart, as after `helm dependency update`.
func loadApplication(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(applicationDir)
	testsupport.NoError(t, err)
	ours, err := loader.LoadDir(chartDir)
	testsupport.NoError(t, err)
	c.AddDependency(ours)
	return c
}

// renderApplication renders that chart with its own values.
func renderApplication(t *testing.T) string {
	t.Helper()
	text, _, err := render(loadApplication(t), map[string]any{})
	testsupport.NoError(t, err)
	return text
}

// render returns the manifests that Helm applies, and the text that it prints after an installation.
func render(c *chart.Chart, v map[string]any) (text, notes string, err error) {
	if err := chartutil.ProcessDependencies(c, v); err != nil {
		return "", "", err
	}
	release := chartutil.ReleaseOptions{Name: "ads", Namespace: "edge", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", "", err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(&b, "---\n# %s\n%s\n", name, files[name])
		}
	}
	return b.String(), files["adbuffer/templates/NOTES.txt"], nil
}
