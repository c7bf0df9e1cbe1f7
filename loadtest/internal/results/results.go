// Package results holds the results of a load test: tables, charts and verdicts, with the machine and
// the versions of the programs.
package results

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report is the result of one load test.
type Report struct {
	Kind     string            `json:"kind"` // the command that made it
	Title    string            `json:"title"`
	Question string            `json:"question"` // the question of the test, in a sentence
	Started  time.Time         `json:"started"`
	Seconds  float64           `json:"seconds"`
	Scale    float64           `json:"scale"` // of the full size
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Verdicts []Verdict         `json:"verdicts"`
	Tables   []Table           `json:"tables"`
	Charts   []Chart           `json:"charts"`
	Notes    []string          `json:"notes"`
	Missing  []string          `json:"missing"` // programs that are not installed
	Doubts   []string          `json:"doubts"`  // reasons not to trust figures, each with its row
}

// Verdict is whether a promise held.
type Verdict struct {
	Promise string `json:"promise"`
	Held    bool   `json:"held"`
	Words   string `json:"words"` // the figures
	// Doubted means that the figures cannot be trusted.
	Doubted bool `json:"doubted"`
}

// Table has a row for each measurement.
type Table struct {
	Title   string   `json:"title"`
	Summary bool     `json:"summary,omitempty"` // a README shows it
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// Row is one measurement, or a figure of a field report.
type Row struct {
	Cells  []string `json:"cells"`
	Theirs bool     `json:"theirs"` // of the field report, on its own machine
	// Doubts are reasons not to trust the row.
	Doubts []string `json:"doubts"`
}

// Add appends a measured row.
func (t *Table) Add(doubts []string, cells ...any) {
	t.Rows = append(t.Rows, Row{Cells: texts(cells), Doubts: doubts})
}

// AddTheirs appends a row of a field report.
func (t *Table) AddTheirs(cells ...any) {
	t.Rows = append(t.Rows, Row{Cells: texts(cells), Theirs: true})
}

func texts(cells []any) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		switch v := c.(type) {
		case float64:
			out[i] = Number(v)
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	return out
}

// Chart is a chart of the HTML report.
type Chart struct {
	Title  string   `json:"title"`
	Kind   string   `json:"kind"` // bar | line
	X      string   `json:"x"`    // titles of the axes, with units
	Y      string   `json:"y"`
	LogX   bool     `json:"log_x"`
	LogY   bool     `json:"log_y"`
	Labels []string `json:"labels"` // of bars
	Series []Series `json:"series"`
}

// Series is one colour of a chart. It has values for the chart's labels, or points.
type Series struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values,omitempty"`
	Points []Point   `json:"points,omitempty"`
	Dashed bool      `json:"dashed,omitempty"` // expected, not measured
}

// Point is a point of a line.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Mark returns a label of a chart, with a mark if there are doubts.
func Mark(label string, doubts []string) string {
	if len(doubts) > 0 {
		return label + " †"
	}
	return label
}

// Doubt notes reasons not to trust a row.
func (r *Report) Doubt(row string, doubts []string) {
	for _, d := range doubts {
		r.Doubts = append(r.Doubts, row+": "+d)
	}
}

// Held reports whether all promises held. It ignores doubted verdicts.
func (r *Report) Held() bool {
	return !slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return !v.Held && !v.Doubted })
}

// JSON writes the report in the format of Save.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Save writes r to DIR/KIND.json.
func (r *Report) Save(dir string) (string, error) {
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, r.Kind+".json")
	return path, os.WriteFile(path, b.Bytes(), 0o644)
}

// order is the order of reports by kind. Other kinds follow by name.
var order = map[string]int{"peers": 1, "keepalive": 2, "pipeline": 3, "pools": 4, "rules": 5, "adproxy": 6, "sick": 7, "cold": 8, "churn": 9, "burst": 10, "soak": 11, "fairness": 12, "chaos": 13}

// LoadAll reads every report in a folder.
func LoadAll(dir string) ([]*Report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []*Report
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		r := new(Report)
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no results: run a load test with --out %s first", dir, dir)
	}
	rank := func(r *Report) int { return cmp.Or(order[r.Kind], len(order)+1) }
	slices.SortStableFunc(out, func(a, b *Report) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Kind, b.Kind))
	})
	return out, nil
}
