package manifesttest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
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

func TestTheChartsPageShowsValuesThatInstall(t *testing.T) {
	made := heredoc.FindStringSubmatch(page(t, chartDir+"/README.md"))
	testsupport.MustTrue(t, made != nil && made[1] == "ads.yaml", "the page makes %v", made)
	v, err := chartutil.ReadValues([]byte(made[2]))
	testsupport.NoError(t, err)
	o := mustDecode(t, mustRenderChart(t, v))
	a := the(t, o, "ads-adbuffer")
	check(t, layOut(t, o, a.spec), a.container)
}
