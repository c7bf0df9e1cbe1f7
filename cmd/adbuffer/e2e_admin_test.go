package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// send asks the admin listener with any method.
func (ab *adbuffer) send(method, path, body string, fields ...string) (status int, answer string) {
	ab.t.Helper()
	req, err := http.NewRequest(method, "http://"+ab.admin+path, strings.NewReader(body))
	if err != nil {
		ab.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		ab.t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		ab.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestBeyondLoopbackTheListenerStartsWithAWarningAndAsksForTheToken(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		ab := start(t, single(healthy(t).URL()), c.env...)
		for _, path := range []string{"/", "/pools", "/config", "/debug/pprof/"} {
			if status, _ := ab.send("GET", path, "", "Authorization", "Bearer "+c.bearer); status != c.want {
				t.Errorf("%v: %s answers %d to the token %q, want %d", c.env, path, status, c.bearer, c.want)
			}
		}
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			if status, _ := ab.send("GET", path, ""); status != 200 {
				t.Errorf("%v: %s answers %d without a token", c.env, path, status)
			}
		}
		if warns, open := strings.Contains(ab.log.String(), "there is no admin.token_file"), len(c.env) == 1; warns != open {
			t.Errorf("%v: a warning about the token: %v, want %v", c.env, warns, open)
		}
		if strings.Contains(ab.log.String(), "0123456789abcdef") {
			t.Error("the log has the token")
		}
	}
}

func TestCaptureShowsExchangesWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	ab := start(t, single(healthy(t).URL(), "headers: {pass: [Cookie, Authorization], set: [{name: X-Api-Key, value: s3cret}]}"), "ADBUFFER_ADMIN_CAPTURE=true")
	y := make(chan string)
	go func() {
		_, body := ab.send("GET", "/capture?ssp=openx&n=2&wait=30s", "")
		y <- body
	}()
	var body string
	eventually(t, "the capture has what it wants", func() bool {
		ab.post("/fillbuffer?pub=7", `{"id":"1"}`, "Cookie: id=s3cret", "Authorization: Bearer s3cret", "User-Agent: phone", "Content-Type: application/json")
		select {
		case body = <-y:
			return true
		default:
			return false
		}
	})
	var v struct{ Exchanges []map[string]any }
	if err := json.Unmarshal([]byte(body), &v); err != nil || len(v.Exchanges) != 2 {
		t.Fatalf("%v: captured %s", err, body)
	}
	if strings.Contains(body, "s3cret") {
		t.Errorf("a secret was captured: %s", body)
	}
	for _, want := range []string{`"outcome": "fill"`, `/bid?pub=7`, `"phone"`, `{\"id\":\"1\"}`, `"status": 200`, `"(hidden)"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	if status, _ := ab.send("GET", "/capture?ssp=other", ""); status != 404 {
		t.Errorf("a capture of an SSP that is not there answers %d", status)
	}
	if status, body := ab.send("GET", "/capture?ssp=openx&n=5&wait=20ms", ""); status != 200 || !strings.Contains(body, `"exchanges": []`) {
		t.Errorf("a capture without traffic answers %d %s", status, body)
	}
}

func TestTheLogLevelCanBeChangedAtRunTime(t *testing.T) {
	t.Parallel()
	ab := start(t, single(healthy(t).URL()), "ADBUFFER_LOG_ACCESS_ENABLED=true", "ADBUFFER_LOG_ACCESS_SAMPLE=1")
	ab.get("/fillbuffer?n=first")
	eventually(t, "the request is logged", func() bool { _, ok := ab.log.line("request"); return ok })
	if status, body := ab.send("PUT", "/log/level", "error"); status != 200 || !strings.Contains(body, `"error"`) {
		t.Fatalf("PUT answers %d %s", status, body)
	}
	lines := func() int { return strings.Count(ab.log.String(), `"msg":"request"`) }
	before := lines()
	ab.get("/fillbuffer?n=second")
	ab.awaitMetric(2, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
	if status, _ := ab.send("PUT", "/log/level", `{"level":"info"}`, "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a page of another origin is answered %d", status)
	}
	if n := lines(); n != before {
		t.Errorf("at level error %d requests were logged", n-before)
	}
	ab.send("PUT", "/log/level", `{"level":"info"}`)
	ab.get("/fillbuffer?n=third")
	eventually(t, "requests are logged again", func() bool { return lines() == before+1 })
}

func TestTheIdleTimeoutToSetIsLearnedAndLogged(t *testing.T) {
	t.Parallel()
	ssp := healthy(t)
	ab := start(t, single(ssp.URL()))
	for range 6 { // idle for a while, then closed by the SSP
		ab.get("/fillbuffer")
		time.Sleep(300 * time.Millisecond)
		ssp.CloseConnections()
		ab.get("/fillbuffer")
	}
	eventually(t, "the log says what to set", func() bool {
		line, ok := ab.log.line("the SSP closes idle connections sooner than adbuffer does; set pool.idle_timeout")
		return ok && line["ssp"] == "openx" && line["now"] == "55s"
	})
	if learned := ab.metric("adbuffer_pool_learned_idle_seconds", "ssp=openx"); learned < 0.05 || learned > 5 {
		t.Errorf("learned %v s of connections that were closed after some 0.3 s", learned)
	}
	if _, body := ab.ask("/pools"); !strings.Contains(body, "Set pool.idle_timeout to ") {
		t.Error("/pools does not say what to set")
	}
}
