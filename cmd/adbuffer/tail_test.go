package main

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestALineOfTailOnATerminalIsColouredAndHasNoForeignControlCharacters(t *testing.T) {
	for _, c := range []struct{ line, colour, has string }{
		{`{"time":"2026-11-21T10:11:12Z","status":200,"outcome":"fill","source":"ssp/a","ssp":"a","endpoint":"h:80","method":"GET","path":"/fill","id":"one","total_ms":1.5}`, green, "       1.5 ms  a@h:80                       GET /fill  one"},
		{`{"status":204,"outcome":"no_bid","path":"/fill"}`, yellow, "no_bid"},
		{`{"status":502,"outcome":"bad_response","error":"a\u001b[2J\r\n\u2028\u009b2Jb","path":"/fill"}`, red, "a?[2J????2Jb"},
		{`{"status":504,"outcome":"deadline","ssp":"slow","path":"/fill","id":"two","error":"too late"}`, red, "slow                          /fill  two  too late"},
		{`{"status":200,"outcome":"merged","path":"/all","legs":[{"ssp":"a","outcome":"fill"},{"ssp":"b","outcome":"deadline"}]}`, green, "a:fill,b:deadline"},
		{`{"status":404,"outcome":"no_route","method":"GET","path":"/x"}`, yellow, "-                            GET /x"},
		{`{"skipped":7}`, yellow, "7 more requests"},
	} {
		var out strings.Builder
		testsupport.NoError(t, writeRequestLine(&out, []byte(c.line)))
		text := out.String()
		testsupport.True(t, strings.Contains(text, c.colour) && strings.Contains(text, c.has), "%q lacks %q or %q", text, c.colour, c.has)
		rest := strings.NewReplacer(c.colour, "", plain, "").Replace(strings.TrimSuffix(text, "\n"))
		testsupport.True(t, !strings.ContainsAny(rest, "\x1b\r\n\u0085\u2028\u009b"), "%q has control characters", text)
	}
}
