package replay

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
)

// Check is the result of a dry run with the traffic.
type Check struct {
	*reload.Check
	Traffic *Report `json:"traffic,omitempty"`
}

// Reload is the result of a reload that may have been tried on the traffic.
type Reload struct {
	reload.Report
	Traffic *Report `json:"traffic,omitempty"`
}

// Report says what a configuration would do to the traffic. Rates are requests a second.
type Report struct {
	Requests int     `json:"requests"` // how many sampled requests were judged
	Seconds  float64 `json:"seconds"`  // the time from which they are
	Rate     float64 `json:"rate"`     // of all requests that they stand for
	// Undecided is the rate of requests that were not judged, since the sample lacks their bodies, masks a value that
	// decides their route, or has no request of their minute.
	Undecided float64      `json:"undecided"`
	Routes    []Route      `json:"routes"`
	SSPs      []SSP        `json:"ssps"`
	Different []Difference `json:"different"`
	Exceeded  []string     `json:"exceeded,omitzero"` // the result of Excess with the limit in force or that of --max-change
	Error     string       `json:"error,omitempty"`   // why no request was judged
}

// Failed returns the report of a replay that failed.
func Failed(err error) *Report {
	return &Report{Routes: []Route{}, SSPs: []SSP{}, Different: []Difference{}, Error: err.Error()}
}

// Change is a rate with the configuration in force, and with the other one.
type Change struct {
	Now    float64 `json:"now"`
	Then   float64 `json:"then"`
	Margin float64 `json:"margin"` // Then is within Then±Margin with 95 % confidence, as the size of the sample tells
}

// Route is what a route would get; "none" stands for the requests that match no route.
type Route struct {
	Route string `json:"route"`
	Change
}

// SSP is what an SSP would get. The rates after Change are those of the new configuration.
type SSP struct {
	SSP string `json:"ssp"`
	Change
	Filtered    float64     `json:"filtered"`             // its conditions do not hold
	OverLimit   float64     `json:"over_qps_limit"`       // more than its qps limit allows in a minute, beyond the 95 % interval
	Refused     float64     `json:"refused_by_qps_limit"` // more than its qps limit allows in a minute, 0 with qps.dry_run
	RefusedNow  float64     `json:"refused_by_qps_limit_now"`
	BytesPerSec float64     `json:"bytes_per_second"`
	BytesNow    float64     `json:"bytes_per_second_now"`
	Edited      float64     `json:"edited"`    // its body is not the client's
	Shortened   float64     `json:"shortened"` // it has less time than now
	Pool        *advice.Fit `json:"pool,omitempty"`
	PoolMargin  float64     `json:"pool_margin,omitempty"` // share of Pool.Needs, with 95 % confidence
	Unmeasured  bool        `json:"unmeasured,omitempty"`  // no sampled request held one of its places, so that Pool is unknown
}

func (r *replay) report() *Report {
	rep := &Report{Requests: r.requests, Routes: []Route{}, SSPs: []SSP{}, Different: []Difference{}}
	if len(r.Strata) > 0 {
		rep.Seconds = r.At.Sub(r.Strata[0].From).Seconds()
	}
	if rep.Seconds <= 0 {
		return rep
	}
	rep.Rate, rep.Undecided = r.total/rep.Seconds, r.undecided/rep.Seconds
	if r.requests == 0 {
		return rep
	}
	now, then := &r.sides[0], &r.sides[1]
	for _, name := range names(now.routes, then.routes) {
		rep.Routes = append(rep.Routes, Route{name, r.change(now.routes[name], then.routes[name], rep.Seconds)})
	}
	for _, name := range names(now.ssps, then.ssps) {
		a, b := now.ssp(name, len(r.Strata)), then.ssp(name, len(r.Strata))
		s := SSP{
			SSP: name, Change: r.change(a.asked, b.asked, rep.Seconds), Filtered: b.filtered / rep.Seconds,
			BytesPerSec: b.bytes / rep.Seconds, BytesNow: a.bytes / rep.Seconds,
			Edited: b.edited / rep.Seconds, Shortened: b.shortened / rep.Seconds,
		}
		_, s.RefusedNow = r.overLimit(r.Now.Config, name, a, rep.Seconds)
		s.OverLimit, s.Refused = r.overLimit(r.Then.Config, name, b, rep.Seconds)
		if p := r.Then.Version.Part(name); p != nil {
			s.Pool, s.PoolMargin = r.poolOf(p, b)
			s.Unmeasured = s.Pool == nil && b.asked > 0
		}
		rep.SSPs = append(rep.SSPs, s)
	}
	rep.Different = r.rates(rep.Seconds)
	return rep
}

// names returns the keys of both maps, sorted.
func names[V any](a, b map[string]V) (all []string) {
	for _, m := range []map[string]V{a, b} {
		for name := range m {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// z95 is the quantile of the normal distribution for a confidence of 95 %.
const z95 = 1.96

// change returns the rates of weights. The margin is that of Wilson's interval for a share, as if the requests had been
// drawn independently with their weights, and of the number of all requests, as if they came at random.
func (r *replay) change(now, then, seconds float64) Change {
	c := Change{Now: now / seconds, Then: then / seconds}
	judged := r.all.sum
	p := min(then/judged, 1)
	low, high := wilson(p, r.all.requests())
	c.Margin = math.Hypot(max(high-p, p-low)*judged, z95*then/math.Sqrt(judged)) / seconds
	return c
}

// wilson returns Wilson's 95 % interval for a share of which n requests have shown p.
func wilson(p, n float64) (low, high float64) {
	center, half := p+z95*z95/(2*n), z95*math.Sqrt(p*(1-p)/n+z95*z95/(4*n*n))
	scale := 1 + z95*z95/n
	return (center - half) / scale, (center + half) / scale
}

// relative returns by which share a rate would change; +Inf if it is 0 now.
func (c *Change) relative() float64 {
	if c.Then == c.Now {
		return 0
	}
	return c.Then/c.Now - 1
}

// Limit is the largest share by which the rate of a route or an SSP may change, and the name of the setting that says so.
type Limit struct {
	Share   float64 // +Inf = no limit
	Setting string
}

// Hide calls hide with all texts that may have values of variables.
func (r *Report) Hide(hide func(texts ...*string)) {
	hide(&r.Error)
	for i := range r.Routes {
		hide(&r.Routes[i].Route)
	}
	for i := range r.SSPs {
		hide(&r.SSPs[i].SSP)
	}
	for i := range r.Different {
		hide(&r.Different[i].What)
	}
	for i := range r.Exceeded {
		hide(&r.Exceeded[i])
	}
}

// Untried returns why no request was judged or, with a limit, why a larger share of them was not, or "".
func (r *Report) Untried(limit Limit) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Requests == 0 && r.Undecided > 0:
		return "no sampled request could be judged: " + whyUndecided
	case r.Requests == 0:
		return "no request is sampled yet: wait for traffic, and set admin.sample.requests of the running adbuffer if it is 0"
	case r.Undecided > limit.Share*r.Rate:
		return fmt.Sprintf("%s of %s/s could not be judged: %s", advice.Number(r.Undecided), advice.Number(r.Rate), whyUndecided)
	}
	return ""
}

// Excess returns the reasons to reject the change: what Untried returns, each route and SSP whose rate would change by more
// than limit, and each pool that would be full.
func (r *Report) Excess(limit Limit) (all []string) {
	if why := r.Untried(limit); why != "" {
		all = append(all, why)
	}
	errs, _ := r.tooGreat(limit)
	for _, e := range errs {
		all = append(all, e.String())
	}
	for i := range r.SSPs {
		if s := &r.SSPs[i]; s.Pool != nil && s.Pool.Full {
			all = append(all, fmt.Sprintf("ssp %s: needs %d of %d places: %s", s.SSP, s.Pool.Needs, s.Pool.Places, s.Pool.Advice))
		}
	}
	return all
}

// Refusal returns, as config.Errors, why a reload must not make the change: each route and SSP whose rate would change by
// more than limit. A full pool is no reason, since it may be full without the change.
func (r *Report) Refusal(limit Limit) error {
	errs, greatest := r.tooGreat(limit)
	if len(errs) == 0 {
		return nil
	}
	allows := "any"
	if !math.IsInf(greatest, 1) {
		allows = fmt.Sprintf("%.0f%%", 10*math.Ceil(10*greatest-1e-9))
	}
	for i := range errs {
		errs[i].Rule += "; adbuffer reload --traffic --max-change " + allows + " applies the file nevertheless"
	}
	return errs
}

// tooGreat returns an error for each route and SSP whose rate would change by more than limit, and the greatest of these
// changes. What qps limits refuse is no part of an SSP's rate.
func (r *Report) tooGreat(limit Limit) (all config.Errors, greatest float64) {
	check := func(what string, c Change) {
		if change := math.Abs(c.relative()); change > limit.Share+1e-9 {
			greatest = max(greatest, change)
			all = append(all, config.Error{Path: what, Value: advice.Number(c.Now) + " → " + advice.Number(c.Then) + "/s",
				Rule: fmt.Sprintf("changes by more than the %.4g %% that %s allows", 100*limit.Share, limit.Setting)})
		}
	}
	for i := range r.Routes {
		check("route "+r.Routes[i].Route, r.Routes[i].Change)
	}
	for i := range r.SSPs {
		s := &r.SSPs[i]
		what := "ssp " + s.SSP
		if s.Refused != s.RefusedNow {
			what += ", within qps.limit"
		}
		check(what, Change{Now: s.Now - s.RefusedNow, Then: s.Then - s.Refused})
	}
	return all, greatest
}

// WriteExceeded prints Exceeded for people.
func (r *Report) WriteExceeded(w io.Writer) {
	for _, text := range r.Exceeded {
		fmt.Fprintf(w, "# traffic: %s\n", text)
	}
}

const whyUndecided = "the sample lacks their bodies, masks a value that decides their route, or has no request of their minute"

// Write prints the report for people.
func (r *Report) Write(w io.Writer) {
	if r.Requests == 0 {
		return // Untried says why
	}
	fmt.Fprintf(w, "# traffic: %d sampled requests stand for %s/s of the last %.0f s\n", r.Requests, advice.Number(r.Rate), r.Seconds)
	if r.Undecided > 0 {
		fmt.Fprintf(w, "# traffic: %s/s are not judged: %s\n", advice.Number(r.Undecided), whyUndecided)
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "TRAFFIC\tNOW/S\tTHEN/S\t95 %\tNOTES")
	for i := range r.Routes {
		c := &r.Routes[i]
		fmt.Fprintf(t, "route %s\t%s\t%s\t%s\t\n", c.Route, advice.Number(c.Now), advice.Number(c.Then), c.margin())
	}
	for i := range r.SSPs {
		s := &r.SSPs[i]
		fmt.Fprintf(t, "ssp %s\t%s\t%s\t%s\t%s\n", s.SSP, advice.Number(s.Now), advice.Number(s.Then), s.margin(), strings.Join(s.notes(), ", "))
	}
	t.Flush()
	for _, d := range r.Different {
		fmt.Fprintf(w, "%s/s: %s", advice.Number(d.Rate), d.What)
		if len(d.IDs) > 0 {
			fmt.Fprintf(w, ", for example %s", strings.Join(d.IDs, " "))
		}
		fmt.Fprintln(w)
	}
}

// margin returns the margin as text: a share of Then, or a rate where Then is 0.
func (c *Change) margin() string {
	if c.Then == 0 {
		return "below " + advice.Number(c.Margin)
	}
	return fmt.Sprintf("±%s %%", advice.Number(100*c.Margin/c.Then))
}

// notes says what else would change for an SSP.
func (s *SSP) notes() (all []string) {
	for _, n := range []struct {
		rate float64
		what string
	}{
		{s.Filtered, "filtered"}, {s.OverLimit, "over qps.limit"}, {s.Edited, "with an edited body"}, {s.Shortened, "with less time"},
	} {
		if n.rate > 0 {
			all = append(all, advice.Number(n.rate)+"/s "+n.what)
		}
	}
	if s.BytesNow != s.BytesPerSec {
		all = append(all, fmt.Sprintf("%s → %s bytes/s sent", advice.Number(s.BytesNow), advice.Number(s.BytesPerSec)))
	}
	switch p := s.Pool; {
	case s.Unmeasured:
		all = append(all, "no sampled request held one of its places, so that the places it needs are unknown")
	case p != nil:
		all = append(all, strings.TrimSuffix(fmt.Sprintf("needs %d of %d places (±%s %%): %s", p.Needs, p.Places, advice.Number(100*s.PoolMargin), p.Advice), ": "))
	}
	return all
}
