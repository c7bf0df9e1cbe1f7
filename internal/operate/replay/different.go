package replay

import (
	"cmp"
	"fmt"
	"slices"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/wire/sample"
)

// Difference is a way in which requests would end differently.
type Difference struct {
	What   string   `json:"what"`
	Rate   float64  `json:"requests_per_second"`
	IDs    []string `json:"ids"` // of examples
	weight float64
}

// different collects the differences, by their text.
type different struct{ texts map[string]*Difference }

func (d *different) add(q *sample.Request, weight float64, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	one := d.texts[what]
	if one == nil {
		one = &Difference{What: what, IDs: []string{}}
		d.texts[what] = one
	}
	one.weight += weight
	if len(one.IDs) < examples && q.ID != "" {
		one.IDs = append(one.IDs, q.ID)
	}
}

// compare notes how q would end differently.
func (d *different) compare(q *sample.Request, weight float64, now, then *proxy.Explanation) {
	if a, b := routeOf(now), routeOf(then); a != b {
		d.add(q, weight, "route %s instead of %s", b, a)
	}
	if a, b := refusalOf(now), refusalOf(then); a != b {
		d.add(q, weight, "%s instead of %s", b, a)
	}
	was := make(map[string]*proxy.ExplainedRequest)
	for i := range now.Requests {
		x := &now.Requests[i]
		was[x.Target.SSP.Name()] = x
	}
	for i := range then.Requests {
		x := &then.Requests[i]
		name := x.Target.SSP.Name()
		before := was[name]
		delete(was, name)
		switch {
		case x.Filtered && before != nil && !before.Filtered:
			d.add(q, weight, "%s is not asked, since its conditions do not hold", name)
		case x.Filtered:
		case before == nil || before.Filtered:
			d.add(q, weight, "%s is asked", name)
		default:
			if x.Budget < before.Budget {
				d.add(q, weight, "%s has less time", name)
			}
			if string(x.Request.Body) != string(before.Request.Body) {
				d.add(q, weight, "%s gets another body", name)
			}
			if string(x.Request.Target) != string(before.Request.Target) || string(x.Request.Fields) != string(before.Request.Fields) {
				d.add(q, weight, "%s gets another target or other fields", name)
			}
		}
	}
	for name, before := range was {
		if !before.Filtered {
			d.add(q, weight, "%s is not asked", name)
		}
	}
}

func refusalOf(e *proxy.Explanation) string {
	if e.Refusal == nil {
		return "a request to SSPs"
	}
	return e.Refusal.Outcome.String()
}

// rates returns the differences, the commonest first.
func (d *different) rates(seconds float64) []Difference {
	all := []Difference{}
	for _, one := range d.texts {
		one.Rate = one.weight / seconds
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Difference) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.What, b.What)) })
	return all
}
