package manifesttest

import (
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
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"adbuffer/internal/testsupport"
)

const (
	overlaysDir    = "../kubernetes/overlays"
	chartDir       = "../helm/adbuffer"
	applicationDir = "../helm/example-application"
)

// everySet returns every shipped set of manifests by its source: the overlays, and the chart with
// each of testdata's values.
func everySet(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"example-application": renderApplication(t)}
	overlays, err := os.ReadDir(overlaysDir)
	testsupport.NoError(t, err)
	for _, o := range overlays {
		all["overlay "+o.Name()] = renderOverlay(t, filepath.Join(overlaysDir, o.Name()))
	}
	files, err := filepath.Glob("testdata/values-*.yaml")
	testsupport.NoError(t, err)
	testsupport.MustTrue(t, len(overlays) >= 2 && len(files) >= 4, "%d overlays and %d values files: some are not where they were", len(overlays), len(files))
	for _, f := range files {
		all[filepath.Base(f)] = mustRenderChart(t, values(t, f))
	}
	return all
}

// renderOverlay does what `kustomize build` does.
func renderOverlay(t *testing.T, dir string) string {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	testsupport.MustTrue(t, err == nil, "%s: %v", dir, err)
	text, err := m.AsYaml()
	testsupport.NoError(t, err)
	return string(text)
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
