package stage

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"adbuffer/loadtest/internal/results"
)

// Table describes a table of the rows of a group.
type Table struct {
	Title   string
	Group   string
	Heads   []string // heads of the columns of Trial.Cells
	Each    []string // one row for each of these names; @ stands for the name in the values of the columns
	Columns []Column
	Theirs  [][]any        // rows with the figures of a field report
	SortBy  string         // an expression; rows without a value come last
	Summary bool           // shown in a README
	Live    *results.Table // rows that a trial adds while it runs
	// Of is Each for rows that belong to no trial. Rows without a value are left out.
	Of []string
}

// Column shows the value of an expression or a text of the row.
type Column struct {
	Head, Value string
	As          string // %, MiB, x for a ratio, or "" for a number
}

func tables(t *Test, rows Rows) (out []results.Table) {
	for _, table := range t.Tables {
		if shown := table.show(rows); len(shown.Rows) > len(table.Theirs) || len(table.Columns) == 0 {
			out = append(out, shown)
		}
	}
	return out
}

func (t Table) show(rows Rows) results.Table {
	out := results.Table{Title: t.Title, Columns: slices.Clone(t.Heads), Summary: t.Summary}
	for _, c := range t.Columns {
		out.Columns = append(out.Columns, c.Head)
	}
	for _, cells := range t.Theirs {
		out.AddTheirs(cells...)
	}
	if t.Live != nil {
		out.Rows = append(out.Rows, t.Live.Rows...)
	}
	of := slices.DeleteFunc(slices.Clone(rows), func(r *Row) bool { return r.Group != t.Group || len(t.Columns) == 0 })
	if t.SortBy != "" {
		rank := func(r *Row) float64 {
			if v, _ := rows.Eval(t.SortBy, r); r.Void == "" && !math.IsNaN(v) {
				return v
			}
			return math.Inf(1)
		}
		slices.SortStableFunc(of, func(a, b *Row) int { return cmp.Compare(rank(a), rank(b)) })
	}
	each := t.Each
	if len(t.Of) > 0 {
		of, each = Rows{{Trial: &Trial{}}}, t.Of
	} else if len(each) == 0 {
		each = []string{""}
	}
	for _, r := range of {
		for _, name := range each {
			cells := slices.Clone(r.Cells)
			if len(cells) == 0 && len(t.Of) == 0 {
				cells = []any{r.Name}
			}
			if name != "" {
				cells = append(cells, name)
			}
			if r.Void != "" {
				out.Add([]string{r.Void}, append(cells, "void")...)
				continue
			}
			known := len(t.Of) == 0
			for _, c := range t.Columns {
				text, ok := rows.text(strings.ReplaceAll(c.Value, "@", name), c.As, r)
				cells, known = append(cells, text), known || ok
			}
			if known {
				out.Add(r.AllDoubts(), cells...)
			}
		}
	}
	return out
}

// Chart describes a chart of the rows of a group.
type Chart struct {
	Title  string
	Group  string
	Only   string // show only trials with this tag
	X, Y   string
	LogX   bool
	LogY   bool
	Line   bool // a line chart with points at the X of each trial
	Ticks  bool // one chart for each trial, with a point for each second
	Series []Series
}

// Series draws the values of an expression. If a trial names a series, its values go there.
type Series struct {
	Name, Value string
	Dashed      bool
}

func charts(t *Test, rows Rows) (out []results.Chart) {
	for _, c := range t.Charts {
		of := slices.DeleteFunc(slices.Clone(rows), func(r *Row) bool {
			return r.Group != c.Group || r.Void != "" || c.Only != "" && !slices.Contains(r.Tags, c.Only)
		})
		switch {
		case len(of) == 0:
		case c.Ticks:
			for _, r := range of {
				out = append(out, timeline(results.Mark(c.Title+r.Name, r.AllDoubts()), r))
			}
		case c.Line:
			out = append(out, c.line(rows, of))
		default:
			out = append(out, c.bars(rows, of))
		}
	}
	return out
}

func (c Chart) bars(all, of Rows) results.Chart {
	out := results.Chart{Title: c.Title, Kind: "bar", Y: c.Y, LogY: c.LogY}
	doubts := map[string][]string{}
	for _, r := range of {
		label := cmp.Or(r.Label, r.Name)
		if !slices.Contains(out.Labels, label) {
			out.Labels = append(out.Labels, label)
		}
		doubts[label] = append(doubts[label], r.AllDoubts()...)
		for _, s := range c.Series {
			v, _ := all.Eval(s.Value, r)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				v = 0
			}
			to := series(&out, cmp.Or(r.Series, s.Name), false)
			to.Values = append(to.Values, v)
		}
	}
	for i, label := range out.Labels {
		out.Labels[i] = results.Mark(label, doubts[label])
	}
	return out
}

func (c Chart) line(all, of Rows) results.Chart {
	out := results.Chart{Title: c.Title, Kind: "line", X: c.X, Y: c.Y, LogX: c.LogX, LogY: c.LogY}
	for _, r := range of {
		for _, s := range c.Series {
			v, _ := all.Eval(s.Value, r)
			to := series(&out, r.Line+s.Name, s.Dashed)
			to.Points = append(to.Points, results.Point{X: r.X, Y: v})
		}
		out.Title = results.Mark(c.Title, r.AllDoubts())
	}
	return out
}

// series returns the series with this name. It adds the series if there is none.
func series(c *results.Chart, name string, dashed bool) *results.Series {
	i := slices.IndexFunc(c.Series, func(s results.Series) bool { return s.Name == name })
	if i < 0 {
		i, c.Series = len(c.Series), append(c.Series, results.Series{Name: name, Dashed: dashed})
	}
	return &c.Series[i]
}

// timeline draws the last round of a row with a point for each second.
func timeline(title string, r *Row) results.Chart {
	c := results.Chart{Title: title, Kind: "line", X: "seconds", Y: "answers/s, ms", LogY: true, Series: []results.Series{{Name: "answers/s"}, {Name: "p50 ms"}, {Name: "p99 ms"}}}
	last := 0.0
	for _, t := range r.Rounds[len(r.Rounds)-1].Ticks {
		if t.Answered == 0 || t.Second <= last {
			continue
		}
		for i, y := range []float64{float64(t.Answered) / (t.Second - last), t.P50, t.P99} {
			c.Series[i].Points = append(c.Series[i].Points, results.Point{X: t.Second, Y: y})
		}
		last = t.Second
	}
	return c
}
