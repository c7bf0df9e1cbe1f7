package results

import (
	"bytes"
	_ "embed"
	"encoding/json"
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
	b.WriteString("# Load tests of adbuffer\n\nRows marked † cannot be trusted; the list below their table says why. Rows marked (theirs) are\nfigures of field reports, measured on other machines.\n\n")
	for _, r := range reports {
		if err := r.Markdown(&b, 2); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// section is a report on the page.
type section struct {
	*Report
	Date   string
	Charts []chart
}

// chart is a canvas of the page.
type chart struct {
	ID    string
	Title string
}

// HTML returns the page.
func HTML(reports []*Report) ([]byte, error) {
	data := struct {
		Style    template.CSS
		Library  template.JS
		Draw     template.JS
		Charts   template.JS // the charts' data
		Sections []section
	}{Style: template.CSS(styleCSS), Library: template.JS(chartJS), Draw: template.JS(drawJS)}
	charts := map[string]Chart{}
	for _, r := range reports {
		s := section{Report: r, Date: r.Started.UTC().Format("2006-01-02 15:04 UTC")}
		for i, c := range r.Charts {
			id := fmt.Sprintf("%s-%d", r.Kind, i+1)
			charts[id] = c
			s.Charts = append(s.Charts, chart{id, c.Title})
		}
		data.Sections = append(data.Sections, s)
	}
	// json escapes <, > and &, so that no text can end the script.
	b, err := json.Marshal(charts)
	if err != nil {
		return nil, err
	}
	data.Charts = template.JS(b)
	var out bytes.Buffer
	err = page.Execute(&out, data)
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
	if !slices.ContainsFunc(reports, (*Report).summarized) {
		return fmt.Errorf("%s holds no results of peers: run it with --out %s first", from, from)
	}
	b := &strings.Builder{}
	b.WriteString(before + measuredBegin + "\n\n")
	for _, r := range reports {
		if !r.summarized() {
			continue
		}
		for _, t := range r.Tables {
			if t.Summary {
				b.WriteString(t.Markdown())
			}
		}
		fmt.Fprintf(b, "%s, scale %s, %s; %s.\n\n", r.Started.UTC().Format("2006-01-02"), Number(r.Scale), r.Machine, r.versions())
	}
	b.WriteString(measuredEnd + after)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func (r *Report) summarized() bool {
	return slices.ContainsFunc(r.Tables, func(t Table) bool { return t.Summary })
}
