package admin

import (
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

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
