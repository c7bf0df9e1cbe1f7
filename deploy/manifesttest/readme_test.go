package manifesttest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// These tests follow the instructions of the pages and compare the output with the output shown
// there.

var (
	planned  = regexp.MustCompile("(?s)```console\n\\$ adbuffer (plan [^\n]*)\n(.*?)```")
	heredoc  = regexp.MustCompile(`(?s)cat > (\S+) <<'EOF'\n(.*?)EOF\n`)
	tableRow = regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (\d+) \| (\d+) % \| (\d+) \| (\d+) \|$`)
)

func page(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	return string(b)
}

func TestPlanPrintsWhatThePageShows(t *testing.T) {
	shown := planned.FindAllStringSubmatch(page(t, "../README.md"), -1)
	testsupport.MustTrue(t, len(shown) != 0, "the page shows no plan")
	for _, s := range shown {
		if out, _, status := e2e.Run(t, nil, strings.Fields(s[1])...); status != 0 || out != s[2] {
			t.Errorf("adbuffer %s: exit status %d, prints\n%s\nthe page has\n%s", s[1], status, out, s[2])
		}
	}
}

func TestPlanAgreesWithTheTableOfReplicas(t *testing.T) {
	rows := tableRow.FindAllStringSubmatch(page(t, "../README.md"), -1)
	testsupport.MustTrue(t, len(rows) >= 3, "%d rows", len(rows))
	for _, r := range rows {
		out, _, _ := e2e.Run(t, nil, "plan", "--rps", "20000", "--p50", "80ms", "--p99", "250ms", "--replicas", r[1], "--json")
		var plan struct {
			SSPs []struct {
				Replicas, Places int
				TotalPlaces      int `json:"total_places"`
				Saturation       float64
				HTTP2GrownConns  int `json:"http2_grown_conns"`
			}
		}
		testsupport.NoError(t, json.Unmarshal([]byte(out), &plan))
		p := plan.SSPs[0]
		want := fmt.Sprintf("| %d | %d | %d | %.0f %% | %d | %d |", p.Replicas, p.Places, p.TotalPlaces, math.Round(100*p.Saturation), p.HTTP2GrownConns, p.HTTP2GrownConns*p.Replicas)
		testsupport.True(t, r[0] == want, "the page has %s, plan says %s", r[0], want)
	}
}

// This is the overlay that the page describes, beside a copy of the folder.
func TestAnOverlayOfOnesOwnFollowsThePage(t *testing.T) {
	made := heredoc.FindStringSubmatch(page(t, "../kubernetes/README.md"))
	testsupport.MustTrue(t, made != nil && made[1] == "kustomization.yaml", "the page makes %v", made)
	disk := filesys.MakeFsInMemory()
	tree := os.DirFS("../kubernetes")
	testsupport.NoError(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return disk.WriteFile(path.Join("/repo/deploy/kubernetes", name), b)
	}))
	config := strings.ReplaceAll(page(t, "../kubernetes/base/adbuffer.yaml"), "rtb.openx.example", "rtb.mine.example")
	testsupport.NoError(t, disk.WriteFile("/repo/ads/kustomization.yaml", []byte(made[2])))
	testsupport.NoError(t, disk.WriteFile("/repo/ads/adbuffer.yaml", []byte(config)))
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/repo/ads")
	testsupport.NoError(t, err)
	text, err := m.AsYaml()
	testsupport.NoError(t, err)
	o := mustDecode(t, string(text))
	if c := o.configMap("adbuffer"); c == nil || c.Data["adbuffer.yaml"] != config {
		t.Error("the overlay's configuration is not the ConfigMap's")
	}
	a := the(t, o, "adbuffer")
	testsupport.Equal(t, a.container.Image, "adbuffer:v1.0.0", "image %s")
	check(t, layOut(t, o, a.spec), a.container)
}

func TestTheChartsPageShowsValuesThatInstall(t *testing.T) {
	made := heredoc.FindStringSubmatch(page(t, chartDir+"/README.md"))
	testsupport.MustTrue(t, made != nil && made[1] == "ads.yaml", "the page makes %v", made)
	v, err := chartutil.ReadValues([]byte(made[2]))
	testsupport.NoError(t, err)
	o := mustDecode(t, mustRenderChart(t, v))
	a := the(t, o, "ads-adbuffer")
	check(t, layOut(t, o, a.spec), a.container)
}
