package proxy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/wire/exchange"

	"adbuffer/internal/test/testsupport"
)

// documentedErrors returns the table of deploy/logs/README.md: the types of each outcome.
func documentedErrors(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../../deploy/logs/README.md")
	testsupport.NoError(t, err)
	_, table, _ := strings.Cut(string(b), "RFC 9209, section 2.3")
	table, _, _ = strings.Cut(table, "\n## ")
	word := regexp.MustCompile("`([a-z_]+)`")
	all := make(map[string][]string)
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		var types []string
		for _, m := range word.FindAllStringSubmatch(cells[2], -1) {
			types = append(types, m[1])
		}
		for _, m := range word.FindAllStringSubmatch(cells[1], -1) {
			all[m[1]] = types
		}
	}
	return all
}

func TestEachOutcomeHasTheDocumentedErrorType(t *testing.T) {
	documented := documentedErrors(t)
	for o := range exchange.Outcomes {
		types := documented[o.String()]
		if o.HasResponse() || o == exchange.Merged || o.NotAsked() || o == exchange.ClientGone || o == exchange.Cancelled {
			testsupport.True(t, len(types) == 0 && statusError(o, nil) == "", "%v has the error type %q, documented %v", o, statusError(o, nil), types)
			continue
		}
		switch o {
		case exchange.Deadline, exchange.ConnectFailed, exchange.TLSFailed: // by phase or cause
			testsupport.True(t, len(types) >= 2, "%v is documented as %v", o, types)
		default:
			testsupport.True(t, len(types) == 1 && types[0] == statusError(o, nil), "%v has the error type %q, documented %v", o, statusError(o, nil), types)
		}
	}
}

func TestTextsOfProxyStatusAreStrings(t *testing.T) {
	got, want := string(appendText(nil, "a \"b\" \\ é\r\n")), `"a \"b\" \\ ????"`
	testsupport.True(t, got == want, "%s, want %s", got, want)
}
