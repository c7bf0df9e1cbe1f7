package forwarding

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/testsupport/vectortest"
)

// Each line of an adbuffer's log, from its start to its end, becomes one event with the line's
// fields and time. Each request gets the labels of its outcome.
func TestTheShipperParsesTheLogOfAnAdbuffer(t *testing.T) {
	t.Parallel()
	fills, noBids, fails := e2e.Healthy(t), e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{NoBid: sspsim.Always}}), e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	ab := e2e.Start(t, fmt.Sprintf(`
log: {access: {enabled: true, sample: 1}}
ssps:
  - {name: fills, endpoints: [%q]}
  - {name: no-bids, endpoints: [%q]}
  - {name: fails, endpoints: [%q]}
routes:
  - {name: choice, match: {path: /one}, ssps: [fills, no-bids, fails], client_choice: true}
  - {name: tiers, match: {path: /tiers}, mode: waterfall, ssps: [fails, no-bids, fills]}
`, fills.URL(), noBids.URL(), fails.URL()))
	for _, path := range []string{"/one/fills", "/one/no-bids", "/one/fails", "/tiers", "/nowhere?forged=\"}"} {
		ab.Get(path, "User-Agent: {\"level\":\"error\"}")
	}
	c := ab.Dial()
	c.Send("GET /\x1b\"} HTTP/1.1\r\nHost: a\r\n\r\n")
	io.Copy(io.Discard, c.Conn)
	c.Close()
	testsupport.Eventually(t, "the log has all requests", func() bool { return len(ab.Log.Lines("request")) == 6 })
	ab.Terminate(0)

	text := ab.Log.String()
	config := vectortest.Load(t, "../../..")
	events := config.Events(t, text)
	requests := make(map[string]int)
	i := 0
	for line := range strings.Lines(text) {
		var want map[string]any
		if err := json.Unmarshal([]byte(line), &want); err != nil || i == len(events) {
			t.Fatalf("%v; %d events; line %d is %s", err, len(events), i, line)
		}
		e := events[i]
		i++
		written, err := time.Parse(time.RFC3339Nano, fmt.Sprint(want["time"]))
		if at, errAt := time.Parse("2006-01-02 15:04:05.999999999 MST", fmt.Sprint(e["timestamp"])); err != nil || errAt != nil || !at.Equal(written) {
			t.Errorf("the timestamp is %v, and the line's time %v", e["timestamp"], want["time"])
		}
		delete(want, "time")
		event := maps.Clone(e)
		delete(event, "timestamp")
		testsupport.True(t, reflect.DeepEqual(event, want), "the event is\n%v, want\n%v", event, want)
		if labels := labelsOf(config, e); want["msg"] == "request" {
			requests[fmt.Sprintf("%s %s %s %s %s", labels["service"], labels["level"], labels["route"], labels["outcome"], labels["ssp"])]++
		}
	}
	want := map[string]int{
		"adbuffer info choice fill fills": 1, "adbuffer info choice no_bid no-bids": 1, "adbuffer info choice server_error fails": 1,
		"adbuffer info tiers fill fills": 1, "adbuffer info none no_route ": 1, "adbuffer info none bad_request ": 1,
	}
	testsupport.True(t, maps.Equal(requests, want) && i == len(events), "%d events of %d lines; requests by labels are %v, want %v", len(events), i, requests, want)
}

// labelsOf returns the labels of an event in Loki. Vector omits a label if the event lacks its field.
func labelsOf(c *vectortest.Config, event map[string]any) map[string]string {
	labels := make(map[string]string)
	for label, value := range c.Sinks.Loki.Labels {
		field, isTemplate := strings.CutPrefix(value, "{{ ")
		if !isTemplate {
			labels[label] = value
		} else if text, ok := event[strings.TrimSuffix(field, " }}")].(string); ok {
			labels[label] = text
		}
	}
	return labels
}
