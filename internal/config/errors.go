package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one thing that is wrong with a configuration.
type Error struct {
	Path  string `json:"path,omitempty"`  // "ssps[0].pool.max_conns"; empty if the whole file is meant
	Value string `json:"value,omitempty"` // as it was written, cut short if long; empty if there is none
	Rule  string `json:"rule"`            // what the value must be
	Line  int    `json:"line,omitempty"`  // from 1; 0 if no line of the file is to blame
	Env   string `json:"env,omitempty"`   // the variable that set the value, if one did
}

// String is one line: where, path, value and rule.
func (f Error) String() string {
	var parts []string
	if f.Line > 0 {
		parts = append(parts, "line "+strconv.Itoa(f.Line))
	}
	for _, part := range []string{f.Env, f.Path, f.Value, f.Rule} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Errors is the error of Load and Parse: everything that is wrong, by line and
// path. It is never empty.
type Errors []Error

// Error is one error a line.
func (f Errors) Error() string {
	lines := make([]string, len(f))
	for i, e := range f {
		lines[i] = e.String()
	}
	return strings.Join(lines, "\n")
}

// maxFaults bounds the message of a hostile file.
const maxErrors = 1000

// maxShown is how many bytes of a value or a key a message repeats.
const maxShown = 80

// shown is s as a message repeats it: quoted unless it is plain, cut if long, and
// without what may be a secret in a URL.
func shown(s string) string {
	s = HideURL(s)
	if len(s) > maxShown {
		end := maxShown
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		return strconv.Quote(s[:end]) + "..."
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// shownAt is shown for the value at path, less what may be a secret. The value is
// often malformed, so more is hidden than of a valid one: a header field's value,
// what stands before an @, and what follows a question mark or number sign.
func shownAt(path, text string) string {
	if i := strings.Index(path, "headers."); i >= 0 {
		if strings.HasSuffix(path, ".value") {
			return ""
		}
		// A name, with which somebody may have written the value: "X-Key: secret".
		if name, value, ok := strings.Cut(text, ":"); ok && value != "" {
			text = name + ":" + Hidden
		}
	}
	if strings.HasSuffix(path, ".value") && strings.Contains(path, ".match.") {
		return "" // its name may say that it is a secret
	}
	if end := strings.LastIndexByte(text, '@'); end >= 0 {
		start := 0
		if i := strings.Index(text, "//"); i >= 0 {
			start = i + len("//")
		}
		if start < end {
			text = text[:start] + Hidden + text[end:]
		}
	}
	if isURLPath(path) || strings.Contains(text, "://") {
		if end := strings.IndexAny(text, "?#"); end >= 0 && end+1 < len(text) {
			text = text[:end+1] + Hidden
		}
	}
	return shown(text)
}

// isURLPath reports whether the value at path is a URL, or meant for one.
func isURLPath(path string) bool {
	return strings.Contains(path, ".endpoints") || path == "tracing.endpoint"
}

// mark is where a value was written.
type mark struct {
	line int    // of the file; 0 if env is set
	env  string // the variable that set it
	text string // of a scalar, as written
	// quoted is true of a scalar in quotes where none belong, which the message
	// then shows.
	quoted bool
}

// report collects errors and knows where each value came from.
type report struct {
	marks map[string]mark // by path, of every value that the file or a variable wrote
	errs  map[Error]struct{}
	bad   map[string]bool // paths that have an error
}

func newReport() *report {
	return &report{marks: map[string]mark{}, errs: map[Error]struct{}{}, bad: map[string]bool{}}
}

// add reports that the value at path breaks a rule, if nothing is wrong yet with
// it, with what holds it or with the related paths that the rule compares it
// to: one mistake is one error. A value that came from ssp_defaults is reported
// there, once for all SSPs.
func (r *report) add(path string, value any, rule string, related ...string) {
	for _, p := range append(related, path) {
		if r.isBad(r.origin(p)) {
			return
		}
	}
	path = r.origin(path)
	text := fmt.Sprint(value)
	m := r.marks[path]
	if m.text != "" {
		text = m.text
	}
	text = shownAt(path, text)
	if m.quoted && !strings.HasPrefix(text, `"`) && text != "" {
		text = `"` + text + `"`
	}
	r.addLater(path, text, rule)
}

// addMissing reports that something that must be there is not.
func (r *report) addMissing(path, rule string) {
	if !r.isBad(path) {
		r.addLater(path, "", rule)
	}
}

// addLater reports an error with value text that is ready to print, whatever else
// is wrong with path.
func (r *report) addLater(path, value, rule string) {
	m := r.nearest(path)
	r.addAt(m, path, value, rule)
}

func (r *report) addAt(m mark, path, value, rule string) {
	if r.full() {
		m, path, value, rule = mark{}, "", "", fmt.Sprintf("there are more than %d errors; these are the first", maxErrors)
	}
	r.errs[Error{Path: path, Value: value, Rule: rule, Line: m.line, Env: m.env}] = struct{}{}
	r.bad[path] = true
}

// full reports whether further errors are only counted as more.
func (r *report) full() bool { return len(r.errs) >= maxErrors }

// isBad reports whether path or what holds it has an error.
func (r *report) isBad(path string) bool {
	for p := path; p != ""; p = parent(p) {
		if r.bad[p] {
			return true
		}
	}
	return r.bad[""]
}

// nearest is where path, or else the closest thing that holds it, was written.
func (r *report) nearest(path string) mark {
	for p := path; p != ""; p = parent(p) {
		if m, ok := r.marks[p]; ok {
			return m
		}
	}
	return mark{}
}

// origin is the path under ssp_defaults where the value at a path under an SSP
// was written, if it was, or else path itself.
func (r *report) origin(path string) string {
	if _, own := r.marks[path]; own || !strings.HasPrefix(path, "ssps[") {
		return path
	}
	_, rest, ok := strings.Cut(path, "].")
	if !ok {
		return path
	}
	ssp := path[:len(path)-len(rest)]
	// A list replaces the default one whole, with all that it holds.
	list, _, _ := strings.Cut(rest, "[")
	if _, own := r.marks[ssp+list]; own && list != rest {
		return path
	}
	shared := "ssp_defaults." + rest
	if _, ok := r.marks[shared]; !ok {
		return path
	}
	return shared
}

// err returns the errors in order, or nil.
func (r *report) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	list := make(Errors, 0, len(r.errs))
	for f := range r.errs {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Rule, b.Rule))
	})
	return list
}

// join appends a key to the path of the section that holds it.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// at appends an index to the path of a list.
func at(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// parent undoes join or at; the parent of a top-level key is "".
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
