package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestTheAccessLogTellsHowARequestEndedAndWhereItsTimeWent(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1})
	ab := start(t, "log: {access: {enabled: true, sample: 1}}\n"+single(s.URL(), "tls: {ca_file: \""+caFile(t, s)+"\"}"))
	ab.post("/fillbuffer?consent=secret", `{"id":"1"}`, "Cookie: secret").wantFill("openx")
	var line map[string]any
	eventually(t, "the log has the request", func() (ok bool) { line, ok = ab.log.line("request"); return ok })
	for field, want := range map[string]any{"route": "default", "method": "POST", "outcome": "fill", "ssp": "openx", "protocol": "http1", "status": 200.0, "request_bytes": 10.0} {
		if line[field] != want {
			t.Errorf("%s is %v, want %v", field, line[field], want)
		}
	}
	for _, field := range []string{"total", "pending", "dial", "tls", "first_byte"} {
		if line[field] == nil {
			t.Errorf("there is no %s in %v", field, line)
		}
	}
	for field, value := range line {
		if text, _ := value.(string); text == "secret" || field == "query" {
			t.Errorf("%s tells what the client sent: %v", field, value)
		}
	}
}

func TestNothingIsLoggedForARequestByDefault(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()))
	for range 20 {
		ab.get("/fillbuffer").wantFill("openx")
		ab.get("/nowhere")
	}
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
	var messages []string
	for text := range strings.Lines(ab.log.String()) {
		var line struct{ Msg string }
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Error(err)
		}
		messages = append(messages, line.Msg)
	}
	want := []string{"configuration", "starting", "ssp", "ready", "draining", "stopped"}
	if messages = slices.DeleteFunc(messages, func(m string) bool { return slices.Contains(want, m) }); len(messages) > 0 {
		t.Errorf("the log has %q beside start and end", messages)
	}
}
