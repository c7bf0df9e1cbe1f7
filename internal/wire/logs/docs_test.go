package logs

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// goldenFields returns the names of all fields of the golden lines and their legs.
func goldenFields(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("testdata/lines.json")
	testsupport.NoError(t, err)
	names := make(map[string]bool)
	for text := range strings.Lines(string(b)) {
		var line struct{ Legs []map[string]any }
		var fields map[string]any
		testsupport.MustTrue(t, json.Unmarshal([]byte(text), &line) == nil && json.Unmarshal([]byte(text), &fields) == nil, "no JSON: %s", text)
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
	b, err := os.ReadFile("../../../deploy/logs/README.md")
	testsupport.NoError(t, err)
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
		t.Errorf("the documented fields are %v, the written ones %v", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(written)))
	}
}

// shippedFields returns the fields of all lines of adbuffer's log: level is in every line.
func shippedFields(t *testing.T) map[string]bool {
	t.Helper()
	fields := goldenFields(t)
	fields["level"] = true
	return fields
}

// A query selects streams by labels, in braces, and filters and sums by labels and fields.
func TestTheDocumentedQueriesUseLabelsAndFieldsThatLokiHas(t *testing.T) {
	b, err := os.ReadFile("../../../deploy/logs/README.md")
	testsupport.NoError(t, err)
	_, queries, _ := strings.Cut(string(b), "```logql\n")
	queries, _, _ = strings.Cut(queries, "```")
	labels, fields := map[string]bool{"service": true, "level": true, "outcome": true, "route": true, "ssp": true}, shippedFields(t)
	selectors := regexp.MustCompile(`\{[^}]*\}`)
	n := 0
	for _, selector := range selectors.FindAllString(queries, -1) {
		for _, m := range regexp.MustCompile(`([a-z_]+)=`).FindAllStringSubmatch(selector, -1) {
			n++
			testsupport.True(t, labels[m[1]], "a query selects streams by %s, which is no label", m[1])
		}
	}
	rest := selectors.ReplaceAllString(queries, "")
	for _, m := range regexp.MustCompile(`\| ([a-z_]+) ?[=<>]|by \(([a-z_]+), ([a-z_]+)\)`).FindAllStringSubmatch(rest, -1) {
		for _, name := range m[1:] {
			if name == "" {
				continue
			}
			n++
			testsupport.True(t, fields[name], "a query uses %s, which no line has", name)
		}
	}
	testsupport.AtLeast(t, n, 10, "only %d names were found in %s", queries)
}
