package logs

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// goldenFields returns the names of all fields of the golden lines and their legs.
func goldenFields(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("testdata/lines.json")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for text := range strings.Lines(string(b)) {
		var line struct{ Legs []map[string]any }
		var fields map[string]any
		if json.Unmarshal([]byte(text), &line) != nil || json.Unmarshal([]byte(text), &fields) != nil {
			t.Fatalf("no JSON: %s", text)
		}
		for _, f := range append(line.Legs, fields) {
			for name := range maps.Keys(f) {
				names[name] = true
			}
		}
	}
	delete(names, "msg")
	return names
}

func TestTheDocumentedFieldsAreThoseThatAreWritten(t *testing.T) {
	b, err := os.ReadFile("../../deploy/logs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "## Fields")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| ([`a-z_, ]+) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = true
		}
	}
	written := goldenFields(t)
	if !maps.Equal(documented, written) {
		t.Errorf("documented are %v, written are %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(written)))
	}
}

func TestTheShipperTakesLabelsThatLinesHave(t *testing.T) {
	b, err := os.ReadFile("../../deploy/logs/vector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Sinks struct {
			Loki struct{ Labels map[string]string }
		}
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	written := goldenFields(t)
	written["level"] = true // of every line
	n := 0
	for label, value := range c.Sinks.Loki.Labels {
		if name, ok := strings.CutPrefix(value, "{{ "); ok {
			n++
			if !written[strings.TrimSuffix(name, " }}")] {
				t.Errorf("label %s is of a field that no line has: %s", label, value)
			}
		}
	}
	if n < 4 {
		t.Errorf("%d labels of fields", n)
	}
}
