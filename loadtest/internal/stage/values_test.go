package stage

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func row(name string, rounds ...Values) *Row {
	r := &Row{Trial: &Trial{Name: name}, Doubts: map[string][]string{}}
	for _, v := range rounds {
		r.Rounds = append(r.Rounds, &Sample{Values: v, Texts: map[string]string{"errors": "none"}})
	}
	return r
}

func cpu(name string, values ...float64) *Row {
	r := row(name)
	for _, v := range values {
		r.Rounds = append(r.Rounds, &Sample{Values: Values{"cpu_us": v}})
	}
	return r
}

func TestExpressionsAreOverRoundsAndRows(t *testing.T) {
	a := row("a b", Values{"p99": 30, "failed": 1, "rss": 5, "s.p99": 10}, Values{"p99": 10, "failed": 2, "rss": 9, "s.p99": 10}, Values{"p99": 20, "failed": 0, "rss": 7, "s.p99": 40})
	b := row("c", Values{"p99": 15, "failed": 4}, Values{"p99": 20}, Values{"p99": 5})
	void := row("void", Values{"failed": 100})
	void.Void = "broken"
	b.Base = "a b"
	rows := Rows{a, b, void}
	for expression, want := range map[string]float64{
		"p99": 20, "failed": 3, "rss": 9, "s.p99": 10, "p99 / s.p99": 2, "c:p99": 15, "sum:failed": 7, "max:p99": 20, "min:p99": 15, "12": 12,
		"a b:p99 / c:p99": 2, // of 2, 0.5 and 4, round by round
	} {
		if got, _ := rows.Eval(expression, a); got != want {
			t.Errorf("%s: %v, want %v", expression, got, want)
		}
	}
	if got, _ := rows.Eval("p99 / base:p99", b); got != 0.5 {
		t.Errorf("of the base: %v, want 0.5", got)
	}
	for _, none := range []string{"nosuch", "nosuch:p99", "void:failed", "p99 / nosuch"} {
		if got, _ := rows.Eval(none, a); !math.IsNaN(got) {
			t.Errorf("%s: %v, want none", none, got)
		}
	}
}

func TestPromisesAreComparisons(t *testing.T) {
	rows := Rows{row("a", Values{"p99": 30, "offered": 1000, "failed": 1}), row("b", Values{"p99": 50, "offered": 1000, "failed": 0})}
	for _, c := range []struct {
		promise Promise
		held    bool
		words   string
	}{
		{Promise{If: "p99 <= 50", Words: "{row} {p99}"}, true, "b 50"},
		{Promise{If: "p99 <= 40", Words: "{row} {p99}"}, false, "b 50"},
		{Promise{If: "p99 < 50 and failed = 0", Words: "{row}"}, false, "a"}, // its failure is the most
		{Promise{If: "a:p99 < b:p99", Words: "{a:p99} {b:p99 / a:p99|x}"}, true, "30 1.667"},
		{Promise{If: "sum:failed / sum:offered <= 0.001", Words: "{sum:failed} of {sum:offered}"}, true, "1 of 2 000"},
		{Promise{If: "sum:failed = 0", Words: "{sum:failed}"}, false, "1"},
		{Promise{If: "min:p99 >= 31", Words: "{row}"}, false, "a"},
	} {
		v := c.promise.verdicts(rows)
		if len(v) != 1 || v[0].Held != c.held || v[0].Words != c.words {
			t.Errorf("%s: %+v, want held %v, %q", c.promise.If, v, c.held, c.words)
		}
	}
	if v := (Promise{If: "p99 <= 40", Text: "fast", Each: true}).verdicts(rows); len(v) != 2 || !v[0].Held || v[1].Held || v[1].Promise != "b: fast" {
		t.Errorf("each: %+v", v)
	}
	if v := (Promise{If: "a:p99 <= c:p99"}).verdicts(rows); len(v) != 0 {
		t.Errorf("a row that was not measured: %+v", v)
	}
}

func TestBrokenPromiseIsDoubtedOnlyByItsOwnSteps(t *testing.T) {
	a, b := row("a", Values{"p99": 30, "fixed.p99": 9}), row("b", Values{"p99": 10, "fixed.p99": 10})
	a.Doubts["fixed"] = []string{"the rate was not kept"}
	saturated, fixed := Promise{If: "a:p99 / b:p99 <= 1.5", Doubtful: true}, Promise{If: "a:fixed.p99 / b:fixed.p99 <= 0.5", Doubtful: true}
	if v := saturated.verdicts(Rows{a, b})[0]; v.Held || v.Doubted {
		t.Errorf("saturated: %+v", v)
	}
	if v := fixed.verdicts(Rows{a, b})[0]; v.Held || !v.Doubted {
		t.Errorf("fixed: %+v", v)
	}
	fixed.Doubtful = false
	if v := fixed.verdicts(Rows{a, b})[0]; v.Held || v.Doubted {
		t.Errorf("without leave to doubt: %+v", v)
	}
	derived := Promise{If: "fixed.p99/slow.p99 <= 1", Doubtful: true}
	a.Rounds[0].Values["fixed.p99/slow.p99"] = 2
	if v := derived.verdicts(Rows{a})[0]; v.Held || !v.Doubted {
		t.Errorf("a derived value that names its steps: %+v", v)
	}
	noisy := Promise{If: "p99 / fixed.p99 <= 1.1", Noise: "noise"}
	c := row("c", Values{"p99": 12, "fixed.p99": 10, "noise": 0}, Values{"p99": 12, "fixed.p99": 10, "noise": 0})
	if v := noisy.verdicts(Rows{c})[0]; v.Held || v.Doubted {
		t.Errorf("without noise: %+v", v)
	}
	c = row("c", Values{"p99": 12, "fixed.p99": 10, "noise": 10}, Values{"p99": 12, "fixed.p99": 10, "noise": 14})
	if v := noisy.verdicts(Rows{c})[0]; v.Held || !v.Doubted {
		t.Errorf("noise of a third: %+v", v)
	}
}

func TestRowsWithErrorsAreVoidAndTheRestAreComparedPairwise(t *testing.T) {
	broken, doubted := cpu("nginx h1", 1), cpu("adbuffer h1", 30, 40, 32)
	broken.Void = "3 of 9 requests failed"
	doubted.Doubts[""] = []string{"at saturation it used only 20 % of its core"}
	rows := Rows{broken, doubted, cpu("haproxy h1", 14, 25, 15), cpu("adbuffer pipelined", 10, 20, 12)}
	test := &Test{Tables: []Table{{Heads: []string{"proxy"}, SortBy: "cpu_us", Columns: []Column{{Head: "CPU", Value: "cpu_us"}}}},
		Charts: []Chart{{Title: "CPU", Series: []Series{{Name: "CPU", Value: "cpu_us"}}}}}
	var got []string
	for _, r := range tables(test, rows)[0].Rows {
		got = append(got, strings.Join(r.Cells, " "))
	}
	if want := []string{"adbuffer pipelined 12", "haproxy h1 15", "adbuffer h1 32", "nginx h1 void"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if c := charts(test, rows)[0]; !slices.Equal(c.Labels, []string{"adbuffer h1 †", "haproxy h1", "adbuffer pipelined"}) {
		t.Errorf("chart of %q", c.Labels)
	}
	// 10/14, 20/25, 12/15: the median of the rounds' ratios.
	p := Promise{If: "adbuffer pipelined:cpu_us / haproxy h1:cpu_us <= 1", Words: "ratio {adbuffer pipelined:cpu_us / haproxy h1:cpu_us}"}
	if v := p.verdicts(rows); len(v) != 1 || !v[0].Held || v[0].Words != "ratio 0.80" {
		t.Errorf("%+v", v)
	}
}

func TestTableOfNamesShowsWhatWasMeasured(t *testing.T) {
	table := Table{Summary: true, Heads: []string{"proxy"}, Of: []string{"adbuffer", "nginx"}, Columns: []Column{{Head: "CPU", Value: "@ h1:cpu_us"}, {Head: "TLS", Value: "@ tls:cpu_us"}}}
	got := table.show(Rows{cpu("adbuffer h1", 3)})
	if len(got.Rows) != 1 || !slices.Equal(got.Rows[0].Cells, []string{"adbuffer", "3", "–"}) || !got.Summary {
		t.Errorf("%+v", got)
	}
}
