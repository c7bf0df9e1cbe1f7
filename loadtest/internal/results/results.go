// Package results holds the results of a load test: tables and verdicts, with the machine and the
// versions of the programs.
package results

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Report is the result of one load test.
type Report struct {
	Title    string            `json:"title"`
	Question string            `json:"question"` // the question of the test, in a sentence
	Started  time.Time         `json:"started"`
	Seconds  float64           `json:"seconds"`
	Scale    float64           `json:"scale"` // of the full size
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Verdicts []Verdict         `json:"verdicts"`
	Tables   []*Table          `json:"tables"`
	Notes    []string          `json:"notes"`
	Missing  []string          `json:"missing"` // programs that are not installed
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
	Theirs bool     `json:"theirs"` // measured by the authors of a field report, on their machine
	// Doubts are reasons not to trust the row.
	Doubts []string `json:"doubts"`
}

// Table adds an empty table to the report.
func (r *Report) Table(title string, columns ...string) *Table {
	t := &Table{Title: title, Columns: columns}
	r.Tables = append(r.Tables, t)
	return t
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
		out[i] = fmt.Sprint(figure(c))
	}
	return out
}

// figure returns a measured value, which is a float64 or a uint64, as the text of a number. It returns
// other values as they are.
func figure(v any) any {
	switch v := v.(type) {
	case float64:
		return Number(v)
	case uint64:
		return Number(float64(v))
	}
	return v
}

// Promise adds the verdict on a promise. figures is a format, whose %v formats measured values of args as tables
// do. If there are doubts about the figures, a promise that did not hold is doubted, and not broken.
func (r *Report) Promise(text string, held bool, doubts []string, figures string, args ...any) {
	for i := range args {
		args[i] = figure(args[i])
	}
	r.Verdicts = append(r.Verdicts, Verdict{Promise: text, Held: held, Doubted: !held && len(doubts) > 0,
		Words: fmt.Sprintf(figures, args...)})
}

// Broken returns an error that names the promises that did not hold, with their figures, or nil if all held. It ignores
// doubted verdicts.
func (r *Report) Broken() error {
	var broken []error
	for _, v := range r.Verdicts {
		if !v.Held && !v.Doubted {
			broken = append(broken, fmt.Errorf("a promise was broken: %s: %s", v.Promise, v.Words))
		}
	}
	return errors.Join(broken...)
}

// Note adds a note.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Misses notes that a program is not installed.
func (r *Report) Misses(reason string) {
	if !slices.Contains(r.Missing, reason) {
		r.Missing = append(r.Missing, reason)
	}
}
