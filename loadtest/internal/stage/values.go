package stage

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"adbuffer/loadtest/internal/results"
)

// Rows are all rows of a test.
type Rows []*Row

// An expression is the name of a measurement or a quotient of two: "p99", "sick.p99 / calm.p99". A
// name of a row with a colon selects the measurement of that row. "base:" selects the row that the
// trial is compared with. "sum:", "min:" and "max:" aggregate over all rows.
//
// Counts of a row are the sum over its rounds, memory is the maximum, and other values are the median.
// A quotient of two rows is the median of the quotients of their rounds, because the speed of the
// machine differs between rounds.

// counts are the measurements whose rounds are added up.
var counts = []string{"offered", "answered", "failed", "connections", "handshakes", "requests"}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// value returns a measurement of the row over all rounds. It returns NaN if there is none.
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

// Median returns the median of v. It does not change v.
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

// term is a measurement of one row or of all rows.
type term struct {
	row  *Row // nil if over is set
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

// value returns the value of the term and the row that holds it.
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

// Eval returns the value of an expression for a row, and the rows that it depends on.
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

// Promise is a comparison of expressions: "p99 <= 50 and failed = 0". If it names no row, it must
// hold for every row of its group.
type Promise struct {
	Text  string
	If    string
	Group string
	// Words describe the measured values. {expression} stands for its value and {row} for the row.
	Words string
	// Noise is an expression for a share. A ratio that exceeds its limit by less than this share is
	// doubted, because the machine is too noisy.
	Noise string
	Each  bool // give a verdict for each row; the row's name precedes Text
	// Doubtful marks a promise that a busy machine can break. If there are doubts about its figures, it
	// counts as doubted and not as broken.
	Doubtful bool
}

var operators = regexp.MustCompile(` (<=|>=|<|>|=) `)

// verdicts judges the promise. Without measurements there is no verdict.
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

// gravity orders verdicts: held, doubted, broken.
func gravity(v results.Verdict) int {
	switch {
	case v.Held:
		return 0
	case v.Doubted:
		return 1
	}
	return 2
}

// verdict judges one row. margin is below 1 if the promise is broken.
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

// doubtsOf returns the doubts about the steps of an expression.
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

// words replaces the expressions in text by their values.
func (rs Rows) words(text string, decisive, own *Row) string {
	return braces.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		if name == "row" {
			if decisive == nil {
				return ""
			}
			return decisive.Name
		}
		expression, as, _ := strings.Cut(name, "|")
		shown, _ := rs.text(expression, as, own)
		return shown
	})
}

// text returns a text of the last round of a row, or the value of an expression as text. known is false
// if there is neither.
func (rs Rows) text(expression, as string, own *Row) (shown string, known bool) {
	if own != nil && len(own.Rounds) > 0 {
		if t, ok := own.Rounds[len(own.Rounds)-1].Texts[expression]; ok {
			return t, true
		}
	}
	v, _ := rs.Eval(expression, own)
	return format(v, as), !math.IsNaN(v)
}

// format returns a value as text: a percentage, a size, a ratio or a number.
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
