package engine

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"adbuffer/loadtest/internal/results"
)

// Rows are the rows of a test.
type Rows []*Row

// An expression names a measurement, or divides one by another: "p99", "sick.p99 /
// calm.p99". A row's name before a colon takes the measurement from there; "base:" is the
// row that a row is compared with. "sum:", "min:" and "max:" are over all rows.
//
// Over the rounds of a row, counts are added up, memory is the most, and of everything else
// the median is taken. Two rows are divided round by round, and the median is taken then,
// since each round meets another mood of the machine.

// counts are the measurements that are added up over rounds.
var counts = []string{"offered", "answered", "failed", "connections", "handshakes", "requests"}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// value returns a measurement of the row over all rounds, NaN where there is none.
func (r *Row) value(name string) float64 {
	if v, err := strconv.ParseFloat(name, 64); err == nil {
		return v
	}
	var all []float64
	for _, round := range r.Rounds {
		if v, ok := round.Values[name]; ok {
			all = append(all, v)
		}
	}
	switch {
	case len(all) == 0:
		return math.NaN()
	case slices.Contains(counts, last(name)):
		sum := 0.0
		for _, v := range all {
			sum += v
		}
		return sum
	case last(name) == "rss":
		return slices.Max(all)
	case last(name) == "noise":
		return (slices.Max(all) - slices.Min(all)) / Median(all)
	}
	return Median(all)
}

// Median returns the value in the middle of v, which it does not change.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

func (rs Rows) named(name string) *Row {
	i := slices.IndexFunc(rs, func(r *Row) bool { return r.Name == name && r.Void == "" && len(r.Rounds) > 0 })
	if i < 0 {
		return nil
	}
	return rs[i]
}

// term is a measurement of one row.
type term struct {
	row  *Row // nil: of all rows
	over string
	name string
}

func (rs Rows) term(text string, own *Row) term {
	text = strings.TrimSpace(text)
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return term{row: own, name: text}
	}
	of, name := text[:i], text[i+1:]
	switch of {
	case "sum", "min", "max":
		return term{over: of, name: name}
	case "base":
		if own != nil {
			of = own.Base
		}
	}
	return term{row: rs.named(of), name: name}
}

// value returns the term, and the row that decides it.
func (t term) value(rs Rows) (float64, *Row) {
	if t.over == "" {
		if v, err := strconv.ParseFloat(t.name, 64); err == nil {
			return v, nil
		}
		if t.row == nil {
			return math.NaN(), nil
		}
		return t.row.value(t.name), t.row
	}
	out, decides := math.NaN(), (*Row)(nil)
	for _, r := range rs {
		v := r.value(t.name)
		switch {
		case math.IsNaN(v) || r.Void != "":
		case t.over == "sum":
			if math.IsNaN(out) {
				out = 0
			}
			out += v
		case math.IsNaN(out), t.over == "min" && v < out, t.over == "max" && v > out:
			out, decides = v, r
		}
	}
	return out, decides
}

// Eval returns what an expression comes to for a row, and the rows that it rests on.
func (rs Rows) Eval(expression string, own *Row) (float64, []*Row) {
	above, below, divided := strings.Cut(expression, " / ")
	a := rs.term(above, own)
	v, row := a.value(rs)
	used := []*Row{row}
	if !divided {
		return v, used
	}
	b := rs.term(below, own)
	w, other := b.value(rs)
	used = append(used, other)
	if row != nil && other != nil && row != other && a.over == "" && b.over == "" {
		var ratios []float64
		for i := range min(len(row.Rounds), len(other.Rounds)) {
			x, okX := row.Rounds[i].Values[a.name]
			y, okY := other.Rounds[i].Values[b.name]
			if okX && okY && y > 0 {
				ratios = append(ratios, x/y)
			}
		}
		return Median(ratios), used
	}
	return v / w, used
}

// Promise is a comparison of measurements: "p99 <= 50 and failed = 0". Without rows of its
// own it must hold for every row of its group.
type Promise struct {
	Text  string
	If    string
	Group string
	// Words say what was seen; {expression} stands for its value, {row} for the row.
	Words string
	// Noise is an expression for a share; where a ratio is beyond its limit by less than
	// this, the machine is too noisy to judge.
	Noise string
	Each  bool // a verdict for each row; Text then follows the row's name
	// Doubtful promises are not taken as broken where there are doubts about the figures, since
	// a busy machine moves them. The others hold on any machine.
	Doubtful bool
}

var operators = regexp.MustCompile(` (<=|>=|<|>|=) `)

// verdicts judges the promise; there is none where nothing was measured.
func (p Promise) verdicts(rs Rows) []results.Verdict {
	own := slices.DeleteFunc(slices.Clone(rs), func(r *Row) bool { return r.Void != "" || len(r.Rounds) == 0 || r.Group != p.Group })
	if strings.Contains(strings.ReplaceAll(p.If, "base:", ""), ":") {
		own = Rows{nil}
	}
	var out []results.Verdict
	var worst *results.Verdict
	least := math.Inf(1)
	for _, row := range own {
		v, margin, ok := p.verdict(rs, row)
		switch {
		case !ok:
		case p.Each:
			v.Promise = row.Name + ": " + p.Text
			out = append(out, v)
		case worst == nil || gravity(v) > gravity(*worst) || gravity(v) == gravity(*worst) && margin < least:
			least, worst = margin, &v
		}
	}
	if worst != nil {
		out = append(out, *worst)
	}
	return out
}

// gravity orders verdicts: a promise that is broken beyond doubt is the worst.
func gravity(v results.Verdict) int {
	switch {
	case v.Held:
		return 0
	case v.Doubted:
		return 1
	}
	return 2
}

// verdict judges one row; margin is below 1 where the promise is broken.
func (p Promise) verdict(rs Rows, own *Row) (v results.Verdict, margin float64, ok bool) {
	v, margin = results.Verdict{Promise: p.Text, Held: true}, math.Inf(1)
	decisive := own
	for _, check := range strings.Split(p.If, " and ") {
		at := operators.FindStringSubmatchIndex(check)
		if at == nil {
			panic(fmt.Sprintf("BUG: %q is no comparison", check))
		}
		left, usedLeft := rs.Eval(check[:at[0]], own)
		right, usedRight := rs.Eval(check[at[1]:], own)
		if math.IsNaN(left) || math.IsNaN(right) {
			return v, 0, false
		}
		holds, m := compare(left, right, check[at[2]:at[3]])
		if decisive == nil && len(usedLeft) == 1 {
			decisive = usedLeft[0]
		}
		if margin = min(margin, m); holds {
			continue
		}
		v.Held = false
		doubted := false
		for _, row := range append(usedLeft, usedRight...) {
			doubted = doubted || p.Doubtful && row != nil && len(row.doubtsOf(check)) > 0
		}
		if p.Noise != "" && strings.Contains(check, " / ") {
			noise, _ := rs.Eval(p.Noise, own)
			doubted = doubted || left-1 < noise
		}
		v.Doubted = doubted
		if !doubted {
			break
		}
	}
	v.Words = rs.words(p.Words, decisive, own)
	return v, margin, true
}

// doubtsOf are the doubts about the steps whose values an expression names.
func (r *Row) doubtsOf(expression string) (out []string) {
	for step, doubts := range r.Doubts {
		if step == "" || strings.Contains(expression, step+".") {
			out = append(out, doubts...)
		}
	}
	return out
}

func compare(a, b float64, operator string) (holds bool, margin float64) {
	const tiny = 1e-9
	switch operator {
	case "<=":
		return a <= b, (b + tiny) / (a + tiny)
	case "<":
		return a < b, (b + tiny) / (a + tiny)
	case ">=":
		return a >= b, (a + tiny) / (b + tiny)
	case ">":
		return a > b, (a + tiny) / (b + tiny)
	}
	if a == b {
		return true, math.Inf(1)
	}
	return false, 0
}

var braces = regexp.MustCompile(`\{([^{}]+)\}`)

// words fills in a text's expressions.
func (rs Rows) words(text string, decisive, own *Row) string {
	return braces.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		if name == "row" {
			if decisive == nil {
				return ""
			}
			return decisive.Name
		}
		name, as, _ := strings.Cut(name, "|")
		if own != nil && len(own.Rounds) > 0 {
			if t, ok := own.Rounds[len(own.Rounds)-1].Texts[name]; ok {
				return t
			}
		}
		v, _ := rs.Eval(name, own)
		return format(v, as)
	})
}

// format writes a value as a column or a text wants it.
func format(v float64, as string) string {
	switch as {
	case "%":
		return fmt.Sprintf("%.2f %%", 100*v)
	case "MiB":
		return results.MiB(int64(v))
	case "x":
		return fmt.Sprintf("%.3f", v)
	}
	return results.Number(v)
}
