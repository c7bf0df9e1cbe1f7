package logs

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/testsupport/vectortest"
)

func TestTheShipperParsesEachGoldenLine(t *testing.T) {
	b, err := os.ReadFile("testdata/lines.json")
	testsupport.NoError(t, err)
	golden := strings.Split(strings.TrimSpace(string(b)), "\n")
	const stamp = `{"level":"info","time":"2026-11-21T10:11:12.123456789Z",`
	var lines strings.Builder
	for _, line := range golden {
		lines.WriteString(stamp + line[1:] + "\n")
	}
	events := vectortest.Load(t, "../..").Events(t, lines.String())
	testsupport.MustTrue(t, len(events) == len(golden) && len(golden) >= 6, "%d events of %d lines", len(events), len(golden))
	for i, e := range events {
		var want map[string]any
		testsupport.NoError(t, json.Unmarshal([]byte(golden[i]), &want))
		want["level"] = "info"
		at, _ := e["timestamp"].(string)
		testsupport.True(t, strings.HasPrefix(at, "2026-11-21 10:11:12.123456789"), "timestamp %v", e["timestamp"])
		delete(e, "timestamp")
		testsupport.True(t, reflect.DeepEqual(e, want), "the event is\n%v, want\n%v", e, want)
	}
}

func TestTheShipperKeepsLinesThatAreNoJSON(t *testing.T) {
	lines := []string{"goroutine 7 [running]:", `["a","list"]`, `{"time":5,"msg":"no time"}`}
	events := vectortest.Load(t, "../..").Events(t, strings.Join(lines, "\n")+"\n")
	testsupport.True(t, len(events) == 3 && events[0]["message"] == lines[0] && events[1]["message"] == lines[1], "%v", events)
	at, _ := events[2]["timestamp"].(string)
	testsupport.True(t, at != "" && events[2]["msg"] == "no time", "a line without a time: %v", events[2])
}
