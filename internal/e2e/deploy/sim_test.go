package deploy

import (
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

func TestSimIsAnSSPThatCanBeChangedWhileItRuns(t *testing.T) {
	t.Parallel()
	out := new(testsupport.LogBuffer)
	sim := exec.Command(e2e.Binary(t), "sim", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--behaviour", `{"response":{"no_bid":{"every":1}}}`)
	sim.Stdout, sim.Stderr = out, out
	testsupport.NoError(t, sim.Start())
	defer sim.Process.Kill()
	var urls []string
	testsupport.Eventually(t, "it prints its address", func() bool {
		urls = regexp.MustCompile(`http://\S+`).FindAllString(out.String(), 2)
		return len(urls) == 2
	})
	ab := e2e.Start(t, e2e.Single(urls[0]))
	ab.Get("/fillbuffer").WantStatus("no bid, as --behaviour says", 204)

	req, err := http.NewRequest("PATCH", urls[1]+"/behaviour", strings.NewReader(`{"response":{"no_bid":{"every":0}}}`))
	testsupport.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}
	res, err := client.Do(req)
	testsupport.NoError(t, err)
	res.Body.Close()
	testsupport.MustTrue(t, res.StatusCode == http.StatusOK, "the control endpoint responds with %s", res.Status)
	ab.Get("/fillbuffer").WantFill("openx")

	ab.Terminate(0)
	testsupport.NoError(t, sim.Process.Signal(syscall.SIGTERM))
	ended := time.AfterFunc(testsupport.Patience, func() { sim.Process.Kill() })
	defer ended.Stop()
	if err := sim.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, out)
	}
}
