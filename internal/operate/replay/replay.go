// Package replay predicts what another configuration would do with the present traffic. It runs each sampled request
// through the code of the request path, with the configuration in force and with the other one, and sends nothing.
package replay

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/sample"
	"adbuffer/internal/wire/syntax"
)

// Side is a configuration that judges the sampled requests. Its proxy serves no requests.
type Side struct {
	Proxy   *proxy.Proxy
	Version *reload.Version
	Config  *config.Config // as the operator wrote it; Version has a copy that opens no connection and shares no limits
}

// Input is what a replay reads.
type Input struct {
	Now, Then Side
	Strata    []sample.Stratum
	At        time.Time // when Strata were read
	Since     time.Time // when the configuration in force was loaded
	// Protocol returns the protocol that the pool of the SSP speaks now, Unknown if there is no such SSP.
	Protocol func(ssp string) exchange.Protocol
	CPU      *cpushare.Share
	// Yield lets the requests of clients that are ready go first. Run calls it after each slice of its work.
	Yield func()
}

const (
	// slice is how long a replay judges sampled requests before it lets the requests of clients go first.
	slice = 100 * time.Microsecond
	// patience is how long a replay waits for CPU.
	patience = 5 * time.Second
	// examples is how many requests a difference names by their ids.
	examples = 3
)

// measured is what the sample tells about an SSP.
type measured struct {
	hold, holds  float64 // seconds, and the weight of the requests that held a place
	fills, asked float64 // weights of the requests that the SSP filled, and of those to which it responded
}

// replay is a replay in progress.
type replay struct {
	*Input
	measured map[string]*measured
	sides    [2]tally // now, then
	different
	maskedFields []string // names of fields and parameters: see findMasked
	maskedParams []string
	ways         [2][]way  // of the request that is judged, by side
	judged       []weights // of each stratum
	all          weights   // of the judged requests
	total        float64   // weight of all requests
	undecided    float64   // weight
	requests     int
}

// weights sums up the weights of requests.
type weights struct{ sum, squares float64 }

func (w *weights) add(weight float64) { w.sum, w.squares = w.sum+weight, w.squares+weight*weight }

// requests returns the effective sample size: how many requests of equal weight would tell as much as those of w.
func (w *weights) requests() float64 { return w.sum * w.sum / w.squares }

// tally sums up what a configuration does with the requests.
type tally struct {
	routes map[string]float64 // weights
	ssps   map[string]*sspTally
}

// sspTally sums up what an SSP gets, in weights. minutes has the sums of each stratum.
type sspTally struct {
	asked, bytes, edited, filtered, shortened float64
	minutes                                   []minute
}

// minute is what an SSP gets in one stratum: the weight of the requests, and the weighted seconds for which they hold
// places.
type minute struct {
	asked float64
	held  weights
}

// Run judges the sampled requests. It ends early if ctx is done.
func Run(ctx context.Context, in *Input) (*Report, error) {
	r := &replay{Input: in, measured: make(map[string]*measured), different: different{texts: make(map[string]*Difference)}, judged: make([]weights, len(in.Strata))}
	for i := range r.sides {
		r.sides[i] = tally{make(map[string]float64), make(map[string]*sspTally)}
	}
	for i := range in.Strata {
		s := &in.Strata[i]
		r.total += float64(s.Seen)
		if len(s.Requests) == 0 {
			r.undecided += float64(s.Seen)
		}
	}
	r.findMasked()
	if err := r.each(ctx, r.measure); err != nil {
		return nil, err
	}
	if err := r.each(ctx, r.judge); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// each calls do for each sampled request, with the index of the request's stratum and the request's weight. Each time that
// a slice of this work is done, each lets the requests of clients go first. It returns an error if ctx is done, or if
// there is too little CPU.
func (in *Input) each(ctx context.Context, do func(i int, q *sample.Request, weight float64)) error {
	turn, err := in.takeTurn()
	if err != nil {
		return err
	}
	defer func() { turn.Release() }()
	begun := time.Now()
	for i := range in.Strata {
		s := &in.Strata[i]
		for _, q := range s.Requests {
			do(i, q, weightOf(s))
			if time.Since(begun) < slice {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			turn.Release()
			in.Yield()
			if turn, err = in.takeTurn(); err != nil {
				return err
			}
			begun = time.Now()
		}
	}
	return nil
}

func (in *Input) takeTurn() (cpushare.Turn, error) {
	turn, err := in.CPU.Acquire(cpushare.DryRun, 0, time.Now().Add(patience))
	if err != nil {
		err = fmt.Errorf("adbuffer has too little CPU for a dry run with the traffic; see server.background_cpu: %w", err)
	}
	return turn, err
}

// weightOf returns for how many requests each kept request of s stands.
func weightOf(s *sample.Stratum) float64 { return float64(s.Seen) / float64(len(s.Requests)) }

// measure adds what q tells about the SSPs.
func (r *replay) measure(_ int, q *sample.Request, weight float64) {
	for _, a := range q.Asked {
		m := r.measured[a.SSP]
		if m == nil {
			m = new(measured)
			r.measured[a.SSP] = m
		}
		if a.Outcome.HasResponse() {
			m.asked += weight
			if a.Outcome == exchange.Fill {
				m.fills += weight
			}
		}
		if a.Hold > 0 {
			m.hold, m.holds = m.hold+weight*a.Hold.Seconds(), m.holds+weight
		}
	}
}

// judge judges q, a request of stratum i, with both configurations.
func (r *replay) judge(i int, q *sample.Request, weight float64) {
	ways := &r.ways
	for side := range r.sides {
		s := r.side(side)
		ways[side] = ways[side][:0]
		s.Proxy.Replay(q, s.host, func(probability float64, e *proxy.Explanation) {
			ways[side] = append(ways[side], way{probability, e})
		})
		defer func() {
			for _, w := range ways[side] {
				w.Release()
			}
		}()
	}
	if !r.decided(i, q, ways) {
		r.undecided += weight
		return
	}
	r.requests++
	r.all.add(weight)
	r.judged[i].add(weight)
	for side := range r.sides {
		for _, w := range ways[side] {
			r.add(side, i, q, weight*w.probability, w.Explanation)
		}
	}
	// Both sides share one random draw, so that ways of equal probability are compared with each other.
	for a, b := ways[0], ways[1]; len(a) > 0 && len(b) > 0; {
		both := min(a[0].probability, b[0].probability)
		if both > least {
			r.compare(q, weight*both, a[0].Explanation, b[0].Explanation)
		}
		a[0].probability -= both
		b[0].probability -= both
		if a[0].probability <= 0 {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
}

// decided reports whether the sample has kept everything of q, a request of stratum i, on which its ways depend. It has
// not if a way depends on the body, which is missing; if the configuration in force does not find the route that q took,
// since a masked value decided it; or if a condition of the other configuration is about a masked value of q.
func (r *replay) decided(i int, q *sample.Request, ways *[2][]way) bool {
	for _, side := range ways {
		if slices.ContainsFunc(side, func(w way) bool { return w.Undecided }) {
			return false
		}
	}
	if q.Route != "" && !r.Strata[i].From.Before(r.Since) && !slices.ContainsFunc(ways[0], func(w way) bool { return routeOf(w.Explanation) == q.Route }) {
		return false
	}
	for name := range syntax.Fields(q.Fields) {
		if slices.ContainsFunc(r.maskedFields, func(masked string) bool { return syntax.EqualFold(name, masked) }) {
			return false
		}
	}
	_, query, _ := bytes.Cut(q.Target, []byte{'?'})
	for param := range bytes.SplitSeq(query, []byte{'&'}) {
		if name, _, _ := bytes.Cut(param, []byte{'='}); slices.Contains(r.maskedParams, string(name)) {
			return false
		}
	}
	return true
}

// findMasked notes which conditions of the other configuration are about values that the sample masks.
func (r *replay) findMasked() {
	for i := range r.Then.Config.Routes {
		m := &r.Then.Config.Routes[i].Match
		for _, c := range m.Header {
			if c.Value != nil && header.IsMasked(c.Name) {
				r.maskedFields = append(r.maskedFields, c.Name)
			}
		}
		for _, c := range m.Query {
			if c.Value != nil && header.NamesSecret(c.Name) {
				r.maskedParams = append(r.maskedParams, c.Name)
			}
		}
	}
}

// way is one of the ways that a request may take by chance.
type way struct {
	probability float64
	*proxy.Explanation
}

func (r *replay) side(i int) *Side {
	if i == 0 {
		return &r.Now
	}
	return &r.Then
}

func (s *Side) host(ssp string) string { return s.Version.Part(ssp).Host() }

// add adds q, which e explains, to the sums of a side.
func (r *replay) add(side, i int, q *sample.Request, weight float64, e *proxy.Explanation) {
	t := &r.sides[side]
	t.routes[routeOf(e)] += weight
	if e.Route == nil || e.Refusal != nil && len(e.Requests) == 0 {
		return
	}
	shares := r.shares(q, e)
	for j := range e.Requests {
		r.addRequest(side, i, q, weight, shares[j], &e.Requests[j])
	}
	if e.Mirror != nil {
		r.addRequest(side, i, q, weight*e.Route.Mirror.Share, 1, e.Mirror)
	}
}

// addRequest adds x, which an SSP gets with the probability share. If x is filtered, only that is counted.
func (r *replay) addRequest(side, i int, q *sample.Request, weight, share float64, x *proxy.ExplainedRequest) {
	name, w := x.Target.SSP.Name(), weight*share
	s := r.sides[side].ssp(name, len(r.Strata))
	switch {
	case x.Filtered:
		s.filtered += weight
		return
	case x.Err != nil:
		return
	}
	s.asked += w
	s.bytes += w * float64(x.Request.HeadBytes()+len(x.Request.Body)+q.BodyBytes-len(q.Body))
	if x.Edited {
		s.edited += w
	}
	m := &s.minutes[i]
	m.asked += w
	m.held.add(w * r.hold(name, q, x.Budget))
}

func (t *tally) ssp(name string, strata int) *sspTally {
	s := t.ssps[name]
	if s == nil {
		s = &sspTally{minutes: make([]minute, strata)}
		t.ssps[name] = s
	}
	return s
}

// hold returns how long q would hold a place of the SSP, in seconds, but at most budget: the time for which q held a place
// or, if q held none, the weighted mean of the times of all requests that held a place. It returns 0 if no request has held
// a place.
func (r *replay) hold(ssp string, q *sample.Request, budget time.Duration) float64 {
	m := r.measured[ssp]
	if m == nil || m.holds == 0 {
		return 0
	}
	hold := m.hold / m.holds
	if a := askedOf(q, ssp); a != nil && a.Hold > 0 {
		hold = a.Hold.Seconds()
	}
	return min(hold, budget.Seconds())
}

func askedOf(q *sample.Request, ssp string) *sample.Asked {
	for i := range q.Asked {
		if q.Asked[i].SSP == ssp {
			return &q.Asked[i]
		}
	}
	return nil
}

// shares returns with which probability each SSP of e gets q: 0 if its conditions do not hold, or if no request can be made
// for it.
func (r *replay) shares(q *sample.Request, e *proxy.Explanation) []float64 {
	if len(e.Requests) == 0 {
		return nil
	}
	all := make([]float64, len(e.Requests))
	mode := e.Route.Mode
	if e.Chosen != nil {
		mode = route.Single
	}
	weights, left := 0, 1.0
	for i := range e.Requests {
		if x := &e.Requests[i]; !x.Filtered {
			weights += x.Target.Weight
		}
	}
	for i := range e.Requests {
		x := &e.Requests[i]
		if x.Filtered || x.Err != nil {
			continue
		}
		switch mode {
		case route.Split:
			all[i] = float64(x.Target.Weight) / float64(weights)
		case route.Waterfall:
			all[i] = left
			left *= 1 - r.fillRate(q, x.Target.SSP.Name())
		default:
			all[i] = 1
		}
	}
	return all
}

// fillRate returns the probability that an SSP fills q: whether it did or, if it did not respond, its share of fills.
func (r *replay) fillRate(q *sample.Request, ssp string) float64 {
	if a := askedOf(q, ssp); a != nil && a.Outcome.HasResponse() {
		if a.Outcome == exchange.Fill {
			return 1
		}
		return 0
	}
	if m := r.measured[ssp]; m != nil && m.asked > 0 {
		return m.fills / m.asked
	}
	return 0
}

func routeOf(e *proxy.Explanation) string {
	if e.Route == nil {
		return "none"
	}
	return e.Route.Name
}
