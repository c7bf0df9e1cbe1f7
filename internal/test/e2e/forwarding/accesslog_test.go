package forwarding

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestNothingIsLoggedForARequestByDefault(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	for range 20 {
		ab.Get("/fillbuffer").WantFill("openx")
		ab.Get("/nowhere")
	}
	ab.Terminate(0)
	var messages []string
	for text := range strings.Lines(ab.Log.String()) {
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

// For any input of a client, the log has one line for each request, and each line is JSON.
func TestAClientCannotForgeALogLine(t *testing.T) {
	t.Parallel()
	const forged = `{"level":"error","msg":"forged"}`
	s := e2e.Healthy(t)
	ab := e2e.Start(t, "log: {access: {enabled: true, sample: 1}}\n"+e2e.Single(s.URL()))
	hostile := []string{
		"GET /fillbuffer\"}\r\n" + forged + "\r\n HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /\x1b[2J\x9b2J\n" + forged + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%0a" + forged + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"\"}\n" + forged + " / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-Request-Id: \"}\t" + forged + "\r\nX-Forwarded-For: " + forged + "\r\nConnection: close\r\n\r\n",
		"GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\n" + forged + "\r\n\r\n",
		"GET /fillbuffer?ssp=%22%7D" + forged + "&ssp=\u2028 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	}
	for _, request := range hostile {
		c := ab.Dial()
		c.Send(request)
		io.Copy(io.Discard, c.Conn)
		c.Close()
	}
	testsupport.Eventually(t, "the log has all requests", func() bool { return len(ab.Log.Lines("request")) >= len(hostile) })
	ab.Terminate(0)
	testsupport.Equal(t, len(ab.Log.Lines("request")), len(hostile), "%d lines about %d requests", len(hostile))
	for text := range strings.Lines(ab.Log.String()) {
		var line struct{ Msg, ID string }
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Msg == "forged" || strings.Contains(line.ID, "forged") {
			t.Errorf("%v: %s", err, text)
		}
		testsupport.True(t, !strings.ContainsAny(strings.TrimSuffix(text, "\n"), "\x1b\r\n"), "a control character is in %q", text)
	}
}
