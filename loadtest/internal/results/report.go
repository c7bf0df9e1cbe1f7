package results

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chartJS is Chart.js 4.6.1, MIT licence (assets/chart.LICENSE.md), without the line that names its
// source map.
//
//go:embed assets/chart.umd.min.js
var chartJS string

//go:embed assets/draw.js
var drawJS string

//go:embed assets/style.css
var styleCSS string

//go:embed assets/page.html
var pageHTML string

var page = template.Must(template.New("page").Parse(pageHTML))

// Write turns the results in a folder into report.html and report.md in another.
func Write(from, to string) (html, md string, err error) {
	if from == "" || to == "" {
		return "", "", errors.New("a report needs a folder")
	}
	reports, err := LoadAll(from)
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", "", err
	}
	html, md = filepath.Join(to, "report.html"), filepath.Join(to, "report.md")
	text, err := HTML(reports)
	if err != nil {
		return "", "", err
	}
	if err := os.WriteFile(html, text, 0o644); err != nil {
		return "", "", err
	}
	text, err = Markdown(reports)
	if err != nil {
		return "", "", err
	}
	return html, md, os.WriteFile(md, text, 0o644)
}

// Markdown returns all reports under one heading.
func Markdown(reports []*Report) ([]byte, error) {
	var b bytes.Buffer
	err := markdown.ExecuteTemplate(&b, "all", reports)
	return b.Bytes(), err
}

// HTML returns the page. The template encodes the charts as JSON, so that no text can end the script.
func HTML(reports []*Report) ([]byte, error) {
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{"Style": template.CSS(styleCSS), "Library": template.JS(chartJS), "Draw": template.JS(drawJS), "Reports": reports})
	return out.Bytes(), err
}

// The lines of a README between which the measurements stand.
const (
	measuredBegin = "<!-- measured by: go run ./loadtest peers -->"
	measuredEnd   = "<!-- end of what was measured -->"
)

// WriteMeasured puts the summaries of the results in a folder between the markers of a
// Markdown file.
func WriteMeasured(from, file string) error {
	reports, err := LoadAll(from)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), measuredBegin+"\n")
	_, after, ended := strings.Cut(rest, measuredEnd)
	if !found || !ended {
		return fmt.Errorf("%s: needs the lines %q and %q", file, measuredBegin, measuredEnd)
	}
	if !slices.ContainsFunc(reports, (*Report).Summarized) {
		return fmt.Errorf("%s holds no results of peers: run it with --out %s first", from, from)
	}
	b := bytes.NewBufferString(before + measuredBegin + "\n\n")
	if err := markdown.ExecuteTemplate(b, "measured", reports); err != nil {
		return err
	}
	b.WriteString(measuredEnd + after)
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// Summarized reports whether a README shows tables of the report.
func (r *Report) Summarized() bool {
	return slices.ContainsFunc(r.Tables, func(t Table) bool { return t.Summary })
}
