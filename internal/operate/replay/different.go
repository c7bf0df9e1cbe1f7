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

// least is the smallest probability that counts: smaller ones come from rounding.
const least = 1e-9

// compare notes how q would end differently. The same chance decides on both sides which SSPs get q.
func (r *replay) compare(q *sample.Request, weight float64, now, then *proxy.Explanation) {
	note := func(probability float64, format string, args ...any) {
		if probability > least {
			r.different.add(q, weight*probability, format, args...)
		}
	}
	if a, b := routeOf(now), routeOf(then); a != b {
		note(1, "route %s instead of %s", b, a)
	}
	if a, b := refusalOf(now), refusalOf(then); a != b {
		note(1, "%s instead of %s", b, a)
	}
	shares, sharesThen := r.shares(q, now), r.shares(q, then)
	was := make(map[string]int) // indices of now.Requests
	for i := range now.Requests {
		was[now.Requests[i].Target.SSP.Name()] = i
	}
	for i := range then.Requests {
		x := &then.Requests[i]
		name := x.Target.SSP.Name()
		share := 0.0
		j, ok := was[name]
		if ok {
			share = shares[j]
			delete(was, name)
		}
		note(sharesThen[i]-share, "%s is asked", name)
		if x.Filtered {
			note(share, "%s is not asked, since its conditions do not hold", name)
		} else {
			note(share-sharesThen[i], "%s is not asked", name)
		}
		both := min(share, sharesThen[i])
		if both == 0 {
			continue
		}
		before := &now.Requests[j]
		if x.Budget < before.Budget {
			note(both, "%s has less time", name)
			r.sides[1].ssp(name, len(r.Strata)).shortened += weight * both
		}
		if string(x.Request.Body) != string(before.Request.Body) {
			note(both, "%s gets another body", name)
		}
		if string(x.Request.Target) != string(before.Request.Target) || string(x.Request.Fields) != string(before.Request.Fields) {
			note(both, "%s gets another target or other fields", name)
		}
	}
	for name, j := range was {
		note(shares[j], "%s is not asked", name)
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
