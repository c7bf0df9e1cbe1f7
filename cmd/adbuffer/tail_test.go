package main

import (
	"strings"
	"testing"
)

func TestALineOfTailOnATerminalIsColouredAndHasNoForeignControlCharacters(t *testing.T) {
	for _, c := range []struct{ line, colour, has string }{
		{`{"time":"2026-11-21T10:11:12Z","status":200,"outcome":"fill","source":"ssp/a","method":"GET","path":"/fill","id":"one","total_ms":1.5}`, green, "1.5 ms ssp/a GET /fill  one"},
		{`{"status":204,"outcome":"no_bid","path":"/fill"}`, yellow, "no_bid"},
		{`{"status":502,"outcome":"bad_response","error":"a\u001b[2J\r\n\u2028\u009b2Jb","path":"/fill"}`, red, "a?[2J????2Jb"},
		{`{"skipped":7}`, yellow, "7 more requests"},
	} {
		var out strings.Builder
		if err := writeRequestLine(&out, []byte(c.line)); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if !strings.Contains(text, c.colour) || !strings.Contains(text, c.has) {
			t.Errorf("%q lacks %q or %q", text, c.colour, c.has)
		}
		rest := strings.NewReplacer(c.colour, "", plain, "").Replace(strings.TrimSuffix(text, "\n"))
		if strings.ContainsAny(rest, "\x1b\r\n\u0085\u2028\u009b") {
			t.Errorf("%q has control characters", text)
		}
	}
}
