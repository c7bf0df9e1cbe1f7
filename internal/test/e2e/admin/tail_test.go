package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// follow runs adbuffer tail, and returns its lines about requests. Tail skips requests if there are
// many, so a test that awaits the line of a request sends the request again.
func follow(t *testing.T, ab *e2e.Process, args ...string) <-chan string {
	t.Helper()
	cmd := exec.Command(e2e.Binary(t), append([]string{"tail", "--admin", "http://" + ab.AdminAddr}, args...)...)
	out, err := cmd.StdoutPipe()
	testsupport.NoError(t, err)
	testsupport.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := make(chan string, 1000)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			if strings.HasPrefix(in.Text(), `{"skipped"`) {
				continue
			}
			select {
			case lines <- in.Text():
			case <-t.Context().Done():
				return
			}
		}
	}()
	return lines
}

func TestTailShowsLiveRequestsAndFailuresShowsTheLastOnes(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q]}
  - {name: gone, endpoints: ["http://127.0.0.1:1/bid"], breaker: {enabled: false}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [openx, gone], client_choice: true}
`, s.URL()))
	all, failed := follow(t, ab), follow(t, ab, "--ssp", "gone", "--outcome", "connect_failed")
	one := follow(t, ab, "--id", "edge-1")
	n := 0
	testsupport.Eventually(t, "all three follow", func() bool {
		ab.Get("/fillbuffer?secret=1").WantFill("openx")
		ab.Get("/fillbuffer/gone", "X-Request-Id: edge-1").WantStatus("an SSP that refuses", 502)
		n++
		return len(all) > 0 && len(failed) > 0 && len(one) > 0
	})
	for name, line := range map[string]string{"all": <-all, "failed": <-failed, "one": <-one} {
		var r struct{ ID, Outcome, SSP, Path, Time string }
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Time == "" || !strings.HasPrefix(r.Path, "/fillbuffer") || strings.Contains(line, "secret") {
			t.Errorf("%s: %v in %s", name, err, line)
		}
		testsupport.True(t, name == "all" || r.Outcome == "connect_failed" && r.SSP == "gone" && r.ID == "edge-1", "%s: %s", name, line)
	}
	status, body := ab.AskAdmin("/failures")
	var v struct {
		Failures []struct{ ID, Outcome, Error string }
	}
	if err := json.Unmarshal([]byte(body), &v); status != 200 || err != nil || len(v.Failures) == 0 || v.Failures[0].ID != "edge-1" || v.Failures[0].Outcome != "connect_failed" || v.Failures[0].Error == "" {
		t.Errorf("%d %v %s", status, err, body)
	}
	// A filter that no request can pass is refused.
	for query, want := range map[string]string{
		"route=nowhere": "there are default",
		"slow=soon":     "slow", "slow=-1s": "slow", "outcome=late": "no outcome", "ssp=opnx": "there are openx, gone", "id=a%20b": "id must be",
		"id=" + strings.Repeat("a", 10<<10): "id must be",
	} {
		if status, body := ab.AskAdmin("/tail?" + query); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%.40s: %d %.200s, want %q", query, status, body, want)
		}
	}
}
