package deploy

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestSimIsAnSSPThatCanBeChangedWhileItRuns(t *testing.T) {
	t.Parallel()
	cmd := e2e.Command(t, nil, "sim", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--behaviour", `{"response":{"no_bid":{"every":1}}}`)
	var urls []string // which it prints
	sim := &e2e.Process{Daemon: testsupport.Launch(t, cmd, func(d *testsupport.Daemon) bool {
		urls = regexp.MustCompile(`http://\S+`).FindAllString(d.Log.String(), 2)
		return len(urls) == 2
	})}
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
	sim.Terminate(0)
}
