package main

import (
	"testing"

	"adbuffer/internal/sspsim"
)

func TestTheAccessLogTellsHowARequestEndedAndWhereItsTimeWent(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1})
	ab := start(t, "log: {access: {enabled: true, sample: 1}}\n"+single(s.URL(), "tls: {ca_file: \""+caFile(t, s)+"\"}"))
	ab.post("/fillbuffer?consent=secret", `{"id":"1"}`, "Cookie: secret").wantFill("openx")
	line, ok := ab.log.line("request")
	if !ok {
		t.Fatalf("no line:\n%s", ab.log)
	}
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
	before := len(ab.log.String())
	for range 20 {
		ab.get("/fillbuffer").wantFill("openx")
		ab.get("/nowhere")
	}
	if got := ab.log.String()[before:]; got != "" {
		t.Errorf("the log has\n%s", got)
	}
}
