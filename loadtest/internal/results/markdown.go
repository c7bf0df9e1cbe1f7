package results

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Number formats a figure with at least three significant digits, or two decimals.
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return "–"
	case a >= 1000:
		return thousands(int64(math.Round(v)))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10 && v != math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// MiB formats a number of bytes.
func MiB(bytes int64) string { return Number(float64(bytes)/(1<<20)) + " MiB" }

// Percent formats a share.
func Percent(share float64) string {
	if math.IsNaN(share) {
		return "–"
	}
	return fmt.Sprintf("%.2f %%", 100*share)
}

// Markdown returns the report, for files and for terminals.
func (r *Report) Markdown() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "## %s\n\n%s\n\n", r.Title, r.Question)
	for _, v := range r.Verdicts {
		fmt.Fprintf(b, "- %v\n", v)
	}
	if len(r.Verdicts) > 0 {
		b.WriteByte('\n')
	}
	var doubts []string
	for _, t := range r.Tables {
		b.WriteString(t.Markdown())
		for _, row := range t.Rows {
			for _, d := range row.Doubts {
				d = fmt.Sprintf("  - %s: %s\n", row.Cells[0], d)
				if !slices.Contains(doubts, d) {
					doubts = append(doubts, d)
				}
			}
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "- %s\n", note)
	}
	for _, program := range r.Missing {
		fmt.Fprintf(b, "- missing: %s\n", program)
	}
	if len(doubts) > 0 {
		b.WriteString("- **not to be trusted** (†):\n" + strings.Join(doubts, ""))
	}
	fmt.Fprintf(b, "- %s, %v, scale %s, %.0f s; %s\n\n", r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Machine,
		Number(r.Scale), r.Seconds, r.versions())
	return b.String()
}

// String returns the verdict as Markdown.
func (v Verdict) String() string {
	return fmt.Sprintf("**%s**: %s. %s", v.outcome(), v.Promise, v.Words)
}

// outcome returns HELD or BROKEN, with a mark if the verdict is doubted.
func (v Verdict) outcome() string {
	switch {
	case v.Held:
		return "HELD"
	case v.Doubted:
		return "BROKEN †"
	}
	return "BROKEN"
}

func (r *Report) versions() string {
	var out []string
	for _, program := range slices.Sorted(maps.Keys(r.Versions)) {
		out = append(out, r.Versions[program])
	}
	return strings.Join(out, "; ")
}

// Markdown returns the table, with aligned columns for terminals.
func (t *Table) Markdown() string {
	rows := [][]string{slices.Clone(t.Columns)}
	for _, r := range t.Rows {
		cells := append(slices.Clone(r.Cells), make([]string, max(0, len(t.Columns)-len(r.Cells)))...)
		if len(r.Doubts) > 0 {
			cells[0] += " †"
		}
		if r.Theirs {
			cells[0] += " (theirs)"
		}
		rows = append(rows, cells)
	}
	width := make([]int, len(t.Columns))
	for _, r := range rows {
		for i := range r {
			r[i] = strings.ReplaceAll(r[i], "|", `\|`)
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	b := &strings.Builder{}
	if t.Title != "" {
		fmt.Fprintf(b, "**%s**\n\n", t.Title)
	}
	for n, r := range rows {
		fmt.Fprintf(b, "| %-*s", width[0], r[0])
		for i := 1; i < len(r); i++ {
			fmt.Fprintf(b, " | %*s", width[i], r[i])
		}
		b.WriteString(" |\n")
		if n > 0 {
			continue
		}
		b.WriteString("|-" + strings.Repeat("-", width[0]+1))
		for _, w := range width[1:] {
			b.WriteString("|" + strings.Repeat("-", w+1) + ":")
		}
		b.WriteString("|\n")
	}
	b.WriteByte('\n')
	return b.String()
}

// The lines of a README between which the measurements stand.
const (
	measuredBegin = "<!-- measured by: go run ./loadtest peers -->"
	measuredEnd   = "<!-- end of what was measured -->"
)

// WriteMeasured writes the tables that a README shows, and how they were measured, between the markers in a
// Markdown file.
func (r *Report) WriteMeasured(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), measuredBegin+"\n")
	_, after, ended := strings.Cut(rest, measuredEnd)
	if !found || !ended {
		return fmt.Errorf("%s: needs the lines %q and %q", file, measuredBegin, measuredEnd)
	}
	measured := ""
	for _, t := range r.Tables {
		if t.Summary {
			measured += t.Markdown()
		}
	}
	measured += fmt.Sprintf("%s, scale %s, %v; %s.\n\n", r.Started.UTC().Format("2006-01-02"), Number(r.Scale), r.Machine,
		r.versions())
	return os.WriteFile(file, []byte(before+measuredBegin+"\n\n"+measured+measuredEnd+after), 0o644)
}
