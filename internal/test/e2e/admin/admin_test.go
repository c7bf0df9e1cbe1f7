package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestBeyondLoopbackTheListenerWarnsAndNeedsTheToken(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	testsupport.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	for _, c := range []struct {
		env    []string
		bearer string
		want   int
	}{
		{[]string{"ADBUFFER_ADMIN_LISTEN=0.0.0.0:0"}, "", 403},
		{[]string{"ADBUFFER_ADMIN_LISTEN=0.0.0.0:0"}, "0123456789abcdef", 403},
		{[]string{"ADBUFFER_ADMIN_LISTEN=0.0.0.0:0", "ADBUFFER_ADMIN_TOKEN_FILE=" + token}, "", 403},
		{[]string{"ADBUFFER_ADMIN_LISTEN=0.0.0.0:0", "ADBUFFER_ADMIN_TOKEN_FILE=" + token}, "0123456789abcdef", 200},
		{[]string{"ADBUFFER_ADMIN_LISTEN=127.0.0.1:0", "ADBUFFER_ADMIN_TOKEN_FILE=" + token}, "", 200},
	} {
		ab := e2e.Start(t, e2e.Single(e2e.Healthy(t).URL()), c.env...)
		for _, path := range []string{"/", "/pools", "/config", "/debug/pprof/"} {
			if status, _ := ab.SendAdmin("GET", path, "", "Authorization", "Bearer "+c.bearer); status != c.want {
				t.Errorf("%v: %s responds with %d to the token %q, want %d", c.env, path, status, c.bearer, c.want)
			}
		}
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			if status, _ := ab.SendAdmin("GET", path, ""); status != 200 {
				t.Errorf("%v: %s responds with %d without a token", c.env, path, status)
			}
		}
		warns := func() bool { return strings.Contains(ab.Log.String(), "there is no admin.token_file") }
		if open := len(c.env) == 1; open {
			testsupport.Eventually(t, "there is a warning about the token", warns)
		} else if warns() {
			t.Errorf("%v: there is a warning about the token", c.env)
		}
		testsupport.True(t, !strings.Contains(ab.Log.String(), "0123456789abcdef"), "the log has the token")
	}
}

func TestTheLogLevelCanBeChangedAtRunTime(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, e2e.Single(e2e.Healthy(t).URL()), "ADBUFFER_LOG_ACCESS_ENABLED=true", "ADBUFFER_LOG_ACCESS_SAMPLE=1")
	ab.Get("/fillbuffer?n=first")
	ab.WantLogged("request")
	if status, body := ab.SendAdmin("PUT", "/log/level", "error"); status != 200 || !strings.Contains(body, `"error"`) {
		t.Fatalf("PUT responds with %d %s", status, body)
	}
	lines := func() int { return strings.Count(ab.Log.String(), `"msg":"request"`) }
	before := lines()
	ab.Get("/fillbuffer?n=second")
	ab.AwaitMetric(2, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
	if status, _ := ab.SendAdmin("PUT", "/log/level", `{"level":"info"}`, "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a page of another origin gets %d", status)
	}
	testsupport.Equal(t, lines(), before, "%d requests are logged at level error")
	ab.SendAdmin("PUT", "/log/level", `{"level":"info"}`)
	ab.Get("/fillbuffer?n=third")
	testsupport.Eventually(t, "requests are logged again", func() bool { return lines() == before+1 })
}

func TestTheIdleTimeoutToSetIsLearnedAndLogged(t *testing.T) {
	t.Parallel()
	ssp := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(ssp.URL()))
	for range 6 { // idle for a while, then closed by the SSP
		ab.Get("/fillbuffer")
		time.Sleep(300 * time.Millisecond)
		ssp.CloseConnections()
		ab.Get("/fillbuffer")
	}
	testsupport.Eventually(t, "the log names the setting", func() bool {
		line, ok := ab.Log.Line("the SSP closes idle connections sooner than adbuffer does; set pool.idle_timeout")
		return ok && line["ssp"] == "openx" && line["now"] == "55s"
	})
	if learned := ab.Metric("adbuffer_pool_learned_idle_seconds", "ssp=openx"); learned < 0.05 || learned > 5 {
		t.Errorf("learned %v s for connections that were closed after about 0.3 s", learned)
	}
	if _, body := ab.AskAdmin("/pools"); !strings.Contains(body, "Set pool.idle_timeout to ") {
		t.Error("/pools does not name the setting")
	}
}
