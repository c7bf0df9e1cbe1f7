package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/testsupport"
)

func reloading(asked *int) func(*Options) {
	return func(o *Options) {
		o.DryRun = func(_ context.Context, document []byte, traffic bool) (int, any) {
			return http.StatusOK, map[string]any{"bytes": len(document), "traffic": traffic}
		}
		o.Reload = func(_ context.Context, t reload.Trial) (int, any) {
			*asked++
			if t.Traffic {
				return http.StatusOK, t
			}
			return http.StatusUnprocessableEntity, map[string]string{"result": "refused"}
		}
		o.Tried = func() string { return "the last trial" }
	}
}

func TestPostReloadRespondsWithTheResult(t *testing.T) {
	asked := 0
	c := newConsole(t, loopback, reloading(&asked))
	w := c.ask("POST", "/reload", "")
	var v map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 422 || v["result"] != "refused" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s, %v", w.Code, w.Header(), w.Body, err)
	}
	testsupport.Equal(t, asked, 1, "asked %d times")
}

func TestPagesOfOtherOriginsCannotReload(t *testing.T) {
	asked := 0
	c := newConsole(t, loopback, reloading(&asked))
	for _, fields := range [][]string{
		{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Host", "evil.example"}, {"Host", "evil.example", "Origin", "http://evil.example"},
	} {
		c.want(403, "POST", "/reload", "", fields...)
	}
	c.want(405, "PUT", "/reload", "")
	away := newConsole(t, beyond, reloading(&asked))
	away.want(403, "POST", "/reload", "")
	away.want(403, "POST", "/reload", "", "Authorization", "Bearer "+token[1:])
	testsupport.Equal(t, asked, 0, "it was asked to reload %d times")
	away.want(422, "POST", "/reload", "", "Authorization", "Bearer "+token)
	c.want(422, "POST", "/reload", "", "Sec-Fetch-Site", "same-origin")
}

func TestAReloadTakesNoConfigurationFromTheClient(t *testing.T) {
	asked := 0
	c := newConsole(t, loopback, reloading(&asked))
	if body := c.want(400, "POST", "/reload", "ssps: []\n"); !strings.Contains(body, "--config") || asked != 0 {
		t.Errorf("asked %d times: %s", asked, body)
	}
}

func TestADryRunIsGuardedAndBounded(t *testing.T) {
	asked := 0
	c := newConsole(t, loopback, reloading(&asked))
	if body := c.want(200, "POST", "/reload?dry_run=1", "ssps: []"); !strings.Contains(body, `"bytes": 8`) {
		t.Error(body)
	}
	if body := c.want(200, "POST", "/reload?dry_run=1&traffic=1", "ssps: []"); !strings.Contains(body, `"traffic": true`) {
		t.Errorf("a dry run with the traffic responds with %s", body)
	}
	c.want(400, "POST", "/reload?dry_run=1&traffic=x", "ssps: []")
	c.want(400, "POST", "/reload?dry_run=1&traffic=1&max_change=0.3", "ssps: []")
	c.want(413, "POST", "/reload?dry_run=1", strings.Repeat("x", maxDocument+1))
	c.want(400, "POST", "/reload?dry_run=", "")
	if body := c.want(400, "POST", "/reload?dry_run=1", ""); !strings.Contains(body, "send the configuration as the body") {
		t.Error(body)
	}
	c.want(403, "POST", "/reload?dry_run=1", "ssps: []", "Origin", "https://evil.example")
	newConsole(t, beyond, reloading(&asked)).want(403, "POST", "/reload?dry_run=1", "ssps: []")
	testsupport.Equal(t, asked, 0, "it was asked to reload %d times")
}

func TestTheTrialOfAReload(t *testing.T) {
	asked := 0
	c := newConsole(t, loopback, reloading(&asked))
	for target, want := range map[string]string{
		"/reload?traffic=1": `"MaxChange": null`, "/reload?traffic=1&max_change=0.3": `"MaxChange": 0.3`, "/reload?traffic=1&max_change=0": `"MaxChange": 0,`,
	} {
		body := c.want(200, "POST", target, "")
		testsupport.True(t, strings.Contains(body, `"Traffic": true`) && strings.Contains(body, want), "%s asks for %s", target, body)
	}
	testsupport.Equal(t, asked, 3, "asked %d times")
	for _, target := range []string{"/reload?max_change=0.3", "/reload?traffic=0&max_change=0.3", "/reload?traffic=1&max_change=-0.1", "/reload?traffic=1&max_change=nan", "/reload?traffic=1&max_change=", "/reload?traffic=x"} {
		c.want(400, "POST", target, "")
	}
	c.want(400, "POST", "/reload?traffic=1", "ssps: []")
	testsupport.Equal(t, asked, 3, "asked %d times")
	testsupport.Equal(t, c.want(200, "GET", "/reload", ""), "the last trial\n", "GET /reload responds with %q")
	newConsole(t, beyond, reloading(&asked)).want(403, "GET", "/reload", "")
}

func TestWithoutAFileThereIsNoReload(t *testing.T) {
	newConsole(t, loopback, nil).want(404, "POST", "/reload", "")
}
