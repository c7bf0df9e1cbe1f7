package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSearched bounds how many bytes are parsed to find a mistyped line.
const maxSearched = 4 << 20

// parserError matches the beginning of the YAML parser's errors. Not all of them name a line.
var parserError = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// syntax reports an error of the YAML parser at the line that was mistyped. The parser itself often names
// the first line of the section around that line.
func (r *report) syntax(data []byte, err error) {
	text := err.Error()
	match := parserError.FindStringSubmatch(text)
	rule := strings.ReplaceAll(text[len(match[0]):], "\n", " ")
	// In YAML, an unquoted value that begins with * refers to an anchor.
	if strings.HasPrefix(rule, "unknown anchor ") {
		rule = "a value that begins with * needs quotes, or an anchor of that name"
	}
	if rule == "found incompatible YAML document" {
		rule = "the directive %YAML must ask for version 1.1 or 1.2"
	}
	m := mark{column: 1}
	m.line, _ = strconv.Atoi(match[1])
	lines := bytes.SplitAfter(data, []byte("\n"))
	if line := mistyped(data, lines); line > 0 {
		m.line, rule = explain(lines, line, rule)
		m.column = 1 + len(indent(lines[m.line-1]))
	}
	r.addAt(m, "", "", "not YAML: "+rule)
}

// mistyped returns the number of the first line after the longest prefix of data that is valid YAML. It
// returns 0 if the search would take too long.
func mistyped(data []byte, lines [][]byte) int {
	ends := make([]int, len(lines)+1) // ends[n] is the length of the first n lines
	for i, line := range lines {
		ends[i+1] = ends[i] + len(line)
	}
	unsearched := maxSearched
	isYAML := func(n int) bool {
		unsearched -= ends[n] + 1
		var doc yaml.Node
		return yaml.Unmarshal(data[:ends[n]], &doc) == nil
	}
	// The first good lines are valid YAML, the first bad lines are not. A prefix that ends inside a list or
	// a text of several lines is not valid either, so the longer prefixes are tried after the binary search.
	good, bad := 0, len(lines)
	for bad-good > 1 && unsearched > 0 {
		if n := (good + bad) / 2; isYAML(n) {
			good = n
		} else {
			bad = n
		}
	}
	for n := bad; n < len(lines) && n < bad+100 && unsearched > 0; n++ {
		if isYAML(n) {
			good, bad = n, n+1
		}
	}
	if bad-good > 1 {
		return 0
	}
	return good + 1
}

var (
	noSpaceAfterDash  = regexp.MustCompile(`^-[^\s-]`)
	noSpaceAfterColon = regexp.MustCompile(`^[\w-]+:\S`)
	isKey             = regexp.MustCompile(`^(- +)*("[^"]*"|'[^']*'|[^\s"'#:]+):(\s|$)`)
	twoColons         = regexp.MustCompile(`^(- +)*[\w-]+: +[^"'#{[]*: `)
	inQuotes          = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	bareReference     = regexp.MustCompile(`[{[].*\$\{`)
)

// explain returns the line that was mistyped, which may be the one before the line at which the parser
// stops, and the parser's rule in an operator's words.
func explain(lines [][]byte, line int, rule string) (mistyped int, words string) {
	here, before := bytes.TrimSpace(lines[line-1]), line-1
	for before > 0 && isBlank(lines[before-1]) {
		before--
	}
	if bytes.ContainsRune(indent(lines[line-1]), '\t') {
		return line, "a tab in the indentation; write spaces"
	}
	if bytes.HasPrefix(lines[line-1], []byte("%")) && strings.Contains(rule, "mapping values are not allowed") {
		return line, "a line --- is missing after the directive"
	}
	if bareReference.Match(inQuotes.ReplaceAll(here, nil)) {
		return line, "a value with ${ needs quotes within {} and []"
	}
	if twoColons.Match(here) {
		return line, "a value with a colon and a space needs quotes"
	}
	if end, isFlow := strings.CutPrefix(rule, "did not find expected ',' or "); isFlow || strings.Contains(rule, "unexpected end of stream") {
		switch text, _, _ := bytes.Cut(here, []byte(" #")); {
		case bytes.ContainsAny(inQuotes.ReplaceAll(text, nil), `"'`):
			return line, "a closing quote is missing"
		case isFlow && bytes.ContainsRune(inQuotes.ReplaceAll(text, nil), '?'):
			return line, "a value with ? needs quotes within {} and []"
		case isFlow:
			return line, "a comma or " + strings.Trim(end, "'") + " is missing"
		}
	}
	if before == 0 || !strings.Contains(rule, "did not find expected key") && !strings.Contains(rule, "did not find expected '-'") && !strings.Contains(rule, "mapping values are not allowed") {
		return line, rule
	}
	previous := bytes.TrimSpace(lines[before-1])
	switch {
	case noSpaceAfterDash.Match(previous):
		return before, "a space is missing after the -"
	case noSpaceAfterColon.Match(previous):
		return before, "a space is missing after the colon"
	case !isKey.Match(previous) && !bytes.HasPrefix(previous, []byte("- ")) && isKey.Match(here) && len(indent(lines[line-1])) == len(indent(lines[before-1])):
		return before, "a colon is missing after the key"
	case bytes.Count(here, []byte(`"`))%2 == 1 || bytes.Count(here, []byte("'"))%2 == 1:
		return line, "a closing quote is missing"
	case fitsNone(lines[:before], len(indent(lines[line-1]))):
		return line, fmt.Sprintf("no line above is indented by %d", len(indent(lines[line-1])))
	}
	return line, rule
}

// fitsNone reports whether no line begins at this column, counted from 0. A list item begins both at its
// dash and at the text after the dash.
func fitsNone(lines [][]byte, column int) bool {
	for _, line := range lines {
		n := len(indent(line))
		if n == column || bytes.HasPrefix(line[n:], []byte("-")) && n+1+len(indent(line[n+1:])) == column {
			return false
		}
	}
	return true
}

func indent(line []byte) []byte { return line[:len(line)-len(bytes.TrimLeft(line, " \t"))] }

func isBlank(line []byte) bool {
	text := bytes.TrimSpace(line)
	return len(text) == 0 || text[0] == '#'
}
