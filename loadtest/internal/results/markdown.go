package results

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/template"
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

//go:embed assets/report.md
var markdownText string

// markdown has the templates report, all and measured.
var markdown = template.Must(template.New("").Funcs(template.FuncMap{"number": Number}).Parse(markdownText))

// Markdown writes the report, for files and for terminals.
func (r *Report) Markdown(w io.Writer) error { return markdown.ExecuteTemplate(w, "report", r) }

// Markdown returns the table. Its columns are aligned, so that terminals show it well.
func (t Table) Markdown() string {
	b := &strings.Builder{}
	rows := [][]string{append([]string(nil), t.Columns...)}
	for _, r := range t.Rows {
		cells := append([]string(nil), r.Cells...)
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
		for i := range min(len(r), len(width)) {
			r[i] = strings.ReplaceAll(r[i], "|", `\|`)
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	if t.Title != "" {
		fmt.Fprintf(b, "**%s**\n\n", t.Title)
	}
	for n, r := range rows {
		r = append(r, make([]string, max(0, len(width)-len(r)))...)
		fmt.Fprintf(b, "| %-*s", width[0], r[0])
		for i := 1; i < len(width); i++ {
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
