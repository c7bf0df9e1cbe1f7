package logs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// shipped returns what the program of deploy/logs/vector.yaml makes of lines. Vector's own VRL
// library runs it.
func shipped(t *testing.T, lines string) (events []map[string]any) {
	t.Helper()
	b, err := os.ReadFile("../../deploy/logs/vector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Transforms struct {
			Parsed struct{ Source string }
		}
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	var problem bytes.Buffer
	find := exec.Command("../../scripts/vrl")
	find.Stderr = &problem
	python, err := find.Output()
	if err != nil {
		t.Fatalf("%v: %s; the test needs python3-venv and PyPI", err, &problem)
	}
	cmd := exec.Command(strings.TrimSpace(string(python)), "testdata/vrl.py", c.Transforms.Parsed.Source)
	cmd.Stdin, cmd.Stderr = strings.NewReader(lines), &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &problem)
	}
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		var e map[string]any
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func TestTheShipperParsesEachGoldenLine(t *testing.T) {
	b, err := os.ReadFile("testdata/lines.json")
	if err != nil {
		t.Fatal(err)
	}
	golden := strings.Split(strings.TrimSpace(string(b)), "\n")
	const stamp = `{"level":"info","time":"2026-11-21T10:11:12.123456789Z",`
	var lines strings.Builder
	for _, line := range golden {
		lines.WriteString(stamp + line[1:] + "\n")
	}
	events := shipped(t, lines.String())
	if len(events) != len(golden) || len(golden) < 6 {
		t.Fatalf("%d events of %d lines", len(events), len(golden))
	}
	for i, e := range events {
		var want map[string]any
		if err := json.Unmarshal([]byte(golden[i]), &want); err != nil {
			t.Fatal(err)
		}
		want["level"] = "info"
		if at, _ := e["timestamp"].(string); !strings.HasPrefix(at, "2026-11-21 10:11:12.123456789") {
			t.Errorf("timestamp %v", e["timestamp"])
		}
		delete(e, "timestamp")
		if !reflect.DeepEqual(e, want) {
			t.Errorf("the event is\n%v, want\n%v", e, want)
		}
	}
}

func TestTheShipperKeepsLinesThatAreNoJSON(t *testing.T) {
	lines := []string{"goroutine 7 [running]:", `["a","list"]`, `{"time":5,"msg":"no time"}`}
	events := shipped(t, strings.Join(lines, "\n")+"\n")
	if len(events) != 3 || events[0]["message"] != lines[0] || events[1]["message"] != lines[1] {
		t.Errorf("%v", events)
	}
	if at, _ := events[2]["timestamp"].(string); at == "" || events[2]["msg"] != "no time" {
		t.Errorf("a line without a time: %v", events[2])
	}
}
