package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Error is one error of a configuration.
type Error struct {
	Path  string `json:"path,omitempty"`  // "ssps[0].pool.max_conns"; empty for the whole file
	Value string `json:"value,omitempty"` // as it was written, cut short if long; empty if there is none
	Rule  string `json:"rule"`            // the rule that the value breaks
	// File is the file as its reader named it; empty if the configuration was not read from a file.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0 = the error is not on a line
	Column int    `json:"column,omitempty"` // in characters from 1; 0 = Line is 0
	Env    string `json:"env,omitempty"`    // the variable that set the value; empty = no variable
}

// String returns one line: place, path, value and rule. The place is file:line:column, a form that
// editors can jump to, or the name of the variable that set the value.
func (f Error) String() string {
	place := f.Env
	switch {
	case f.Env != "":
	case f.File != "":
		place = fmt.Sprintf("%s:%d:%d", f.File, max(1, f.Line), max(1, f.Column))
	case f.Line > 0:
		place = fmt.Sprintf("line %d, column %d", f.Line, f.Column)
	}
	parts := slices.DeleteFunc([]string{place, f.Path, f.Value, f.Rule}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// Errors is the error that Load and Parse return: all errors of a configuration, sorted by line and
// path. It is never empty.
type Errors []Error

// Error returns one line for each error.
func (f Errors) Error() string {
	lines := make([]string, len(f))
	for i, e := range f {
		lines[i] = e.String()
	}
	return strings.Join(lines, "\n")
}

// In returns a copy of the errors in which File is file.
func (f Errors) In(file string) Errors {
	f = slices.Clone(f)
	for i := range f {
		f[i].File = file
	}
	return f
}

// maxErrors bounds the size of the error message that a hostile file can cause.
const maxErrors = 1000

// maxShown is how many bytes of a value or a key an error message repeats.
const maxShown = 80

// shown returns s as error messages repeat it: with possible secrets of a URL hidden, cut to maxShown
// bytes, and quoted unless s is plain text.
func shown(s string) string {
	s = HideURL(s)
	if len(s) > maxShown {
		end := maxShown
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		return strconv.Quote(s[:end]) + "..."
	}
	if s == "" || !isGraphic(s) || strings.ContainsAny(s, `"\`) {
		return strconv.Quote(s)
	}
	return s
}

// shownAt does what shown does for the value at path, and hides possible secrets. An invalid value is often
// malformed, so shownAt hides more than HideURL does: a header field's value, the text before an @,
// and the text after a question mark or number sign.
func shownAt(path, text string) string {
	if i := strings.Index(path, "headers."); i >= 0 {
		if strings.HasSuffix(path, ".value") {
			return ""
		}
		// The operator may have written the value with the name: "X-Key: secret".
		if name, value, ok := strings.Cut(text, ":"); ok && value != "" {
			text = name + ":" + Hidden
		}
	}
	if strings.Contains(path, ".in[") || strings.Contains(path, ".not_in[") || strings.HasSuffix(path, ".value") && strings.Contains(path, ".match.") {
		return "" // the value of a condition may be a secret
	}
	if strings.Contains(path, "set[") && !strings.HasSuffix(path, ".path") && !strings.Contains(path, "headers.") {
		return "" // a value to set may be a secret
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

// isURLPath reports whether the value at path should be a URL.
func isURLPath(path string) bool {
	return strings.Contains(path, ".endpoints") || path == "tracing.endpoint"
}

// mark is the place where a value was written, and its text.
type mark struct {
	line, column int    // in the file; 0 if env is set
	env          string // the variable that set the value
	text         string // a scalar as written
	// quoted is true for a number, a boolean or a duration that is written in quotes by
	// mistake, so that the error message shows the quotes.
	quoted bool
}

// markOf returns the mark of a section, a list or a key.
func markOf(node *yaml.Node) mark { return mark{line: node.Line, column: node.Column} }

// report collects errors and knows where each value came from.
type report struct {
	marks map[string]mark // the marks of all values that the file or a variable sets, by path
	errs  map[Error]struct{}
	bad   map[string]bool // paths that have an error
}

func newReport() *report {
	return &report{marks: map[string]mark{}, errs: map[Error]struct{}{}, bad: map[string]bool{}}
}

// add reports that the value at path breaks a rule. The message does not show a nil value. add does
// nothing if path, a section around it or a related path has an error already, so that one mistake
// causes one error. A value that an SSP takes from ssp_defaults is reported at its path in ssp_defaults,
// once for all SSPs.
func (r *report) add(path string, value any, rule string, related ...string) {
	for _, p := range append(related, path) {
		if r.isBad(r.origin(p)) {
			return
		}
	}
	path = r.origin(path)
	if value == nil {
		r.addNearest(path, "", rule)
		return
	}
	m := r.marks[path]
	text := shownAt(path, cmp.Or(m.text, fmt.Sprint(value)))
	if m.quoted && !strings.HasPrefix(text, `"`) && text != "" {
		text = `"` + text + `"`
	}
	r.addNearest(path, text, rule)
}

// addNearest reports an error even if path has other errors, at the place of path or of the closest
// section around it. value is ready to print.
func (r *report) addNearest(path, value, rule string) {
	r.addAt(r.nearest(path), path, value, rule)
}

func (r *report) addAt(m mark, path, value, rule string) {
	if r.full() {
		m, path, value, rule = mark{}, "", "", fmt.Sprintf("there are more than %d errors; these are the first", maxErrors)
	}
	r.errs[Error{Path: path, Value: value, Rule: rule, Line: m.line, Column: m.column, Env: m.env}] = struct{}{}
	r.bad[path] = true
}

// full reports whether there are maxErrors errors.
func (r *report) full() bool { return len(r.errs) >= maxErrors }

// isBad reports whether path or a section around it has an error.
func (r *report) isBad(path string) bool {
	for p := path; p != ""; p = parent(p) {
		if r.bad[p] {
			return true
		}
	}
	return r.bad[""]
}

// isBadBelow reports whether a value of the section at path has an error.
func (r *report) isBadBelow(path string) bool {
	for p := range r.bad {
		if strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

// isSet reports whether the file or a variable sets the key at path.
func (r *report) isSet(path string) bool {
	_, set := r.marks[path]
	return set
}

// nearest returns the mark of path, or else of the closest section around it.
func (r *report) nearest(path string) mark {
	for p := path; p != ""; p = parent(p) {
		if m, ok := r.marks[p]; ok {
			return m
		}
	}
	return mark{}
}

// origin returns where the value at path was set: the path in ssp_defaults for a value that an SSP
// takes from there, path for every other value.
func (r *report) origin(path string) string {
	if _, own := r.marks[path]; own || !strings.HasPrefix(path, "ssps[") {
		return path
	}
	_, rest, ok := strings.Cut(path, "].")
	if !ok {
		return path
	}
	ssp := path[:len(path)-len(rest)]
	// A list of the SSP replaces the whole list of ssp_defaults.
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
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Rule, b.Rule))
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
