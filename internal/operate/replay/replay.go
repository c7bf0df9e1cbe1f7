// Package replay says what another configuration would do to the traffic that is there. It takes the sampled requests
// through the code of the request path, with the configuration in force and with the other one, and sends nothing.
package replay

import (
	"fmt"
	"slices"
	"time"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/sample"
)

// Side is a configuration that judges the sampled requests. Its proxy serves no requests.
type Side struct {
	Proxy   *proxy.Proxy
	Version *reload.Version
}

// Input is what a replay reads.
type Input struct {
	Now, Then Side
	Strata    []sample.Stratum
	At        time.Time // when Strata were read
	// Protocol returns the protocol that the pool of the SSP speaks now, Unknown if there is no such SSP.
	Protocol func(ssp string) exchange.Protocol
	CPU      *cpushare.Share
}

const (
	// slice is how long requests are judged before the requests of clients get their turn.
	slice = 250 * time.Microsecond
	// patience is how long a replay waits for CPU.
	patience = 5 * time.Second
	// window is how many minutes have their requests in common where a single minute has too few of them.
	window = 5
	// examples is how many ids of requests a difference has.
	examples = 3
)

// measured is what the sample tells about an SSP.
type measured struct {
	hold, holds  float64 // seconds, and the weight of the requests that held a place
	fills, asked float64 // weights
}

// replay is a replay in progress.
type replay struct {
	*Input
	measured map[string]*measured
	sides    [2]tally // now, then
	different
	judged, total, squares float64 // weights: of the judged requests, of all, and the sum of their squares
	undecided              float64
	requests               int
}

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

// minute is what an SSP gets in one stratum.
type minute struct{ asked, held float64 } // weights, and seconds

// Run judges the sampled requests.
func Run(in *Input) (*Report, error) {
	r := &replay{Input: in, measured: make(map[string]*measured), different: different{all: make(map[string]*Difference)}}
	for i := range r.sides {
		r.sides[i] = tally{make(map[string]float64), make(map[string]*sspTally)}
	}
	r.measure()
	turn, err := in.CPU.Acquire(cpushare.DryRun, 0, time.Now().Add(patience))
	if err != nil {
		return nil, fmt.Errorf("adbuffer has too little CPU for a dry run with the traffic: %w", err)
	}
	defer func() { turn.Release() }()
	begun := time.Now()
	for i := range in.Strata {
		s := &in.Strata[i]
		r.total += float64(s.Seen)
		if len(s.Requests) == 0 {
			r.undecided += float64(s.Seen)
		}
		for _, q := range s.Requests {
			r.judge(i, q, weightOf(s))
			if time.Since(begun) < slice {
				continue
			}
			turn.Release()
			time.Sleep(time.Microsecond) // lets requests that are ready run
			turn, err = in.CPU.Acquire(cpushare.DryRun, 0, time.Now().Add(patience))
			if err != nil {
				return nil, fmt.Errorf("adbuffer has too little CPU for a dry run with the traffic: %w", err)
			}
			begun = time.Now()
		}
	}
	return r.report(), nil
}

// weightOf returns for how many requests each kept request of s stands.
func weightOf(s *sample.Stratum) float64 { return float64(s.Seen) / float64(len(s.Requests)) }

// measure sums up what the sampled requests tell about the SSPs.
func (r *replay) measure() {
	for i := range r.Strata {
		s := &r.Strata[i]
		for _, q := range s.Requests {
			for _, a := range q.Asked {
				m := r.measured[a.SSP]
				if m == nil {
					m = new(measured)
					r.measured[a.SSP] = m
				}
				w := weightOf(s)
				if a.Outcome.HasResponse() {
					m.asked += w
					if a.Outcome == exchange.Fill {
						m.fills += w
					}
				}
				if a.Hold > 0 {
					m.hold, m.holds = m.hold+w*a.Hold.Seconds(), m.holds+w
				}
			}
		}
	}
}

// judge judges q, a request of stratum i, with both configurations.
func (r *replay) judge(i int, q *sample.Request, weight float64) {
	r.requests++
	var ways [2][]way
	for side := range r.sides {
		s := r.side(side)
		s.Proxy.Replay(q, s.host, func(probability float64, e *proxy.Explanation) {
			ways[side] = append(ways[side], way{probability, e})
		})
		if ways[side][0].Undecided {
			r.undecided += weight
			return
		}
	}
	r.judged, r.squares = r.judged+weight, r.squares+weight*weight
	budgets := make(map[string]time.Duration)
	for side := range r.sides {
		for _, w := range ways[side] {
			r.add(side, i, q, weight*w.probability, w.Explanation, budgets)
		}
	}
	r.compare(q, weight, likeliest(ways[0]), likeliest(ways[1]))
}

// way is one of the ways that a request may take by chance.
type way struct {
	probability float64
	*proxy.Explanation
}

func likeliest(ways []way) *proxy.Explanation {
	return slices.MaxFunc(ways, func(a, b way) int { return int(1e6 * (a.probability - b.probability)) }).Explanation
}

func (r *replay) side(i int) *Side {
	if i == 0 {
		return &r.Now
	}
	return &r.Then
}

func (s *Side) host(ssp string) string { return s.Version.Part(ssp).Host() }

// add adds q, which e explains, to the sums of a side. budgets has the times of the SSPs of the side now.
func (r *replay) add(side, i int, q *sample.Request, weight float64, e *proxy.Explanation, budgets map[string]time.Duration) {
	t := &r.sides[side]
	t.routes[routeOf(e)] += weight
	if e.Route == nil || e.Refusal != nil && len(e.Requests) == 0 {
		return
	}
	shares := r.shares(q, e)
	for j := range e.Requests {
		x := &e.Requests[j]
		name, w := x.Target.SSP.Name(), weight*shares[j]
		s := t.ssp(name, len(r.Strata))
		if x.Filtered {
			s.filtered += weight
			continue
		}
		s.asked += w
		s.bytes += w * float64(x.Request.HeadBytes()+len(x.Request.Body)+q.BodyBytes-len(q.Body))
		if x.Edited {
			s.edited += w
		}
		if side == 0 {
			budgets[name] = x.Budget
		} else if before, ok := budgets[name]; ok && x.Budget < before {
			s.shortened += w
		}
		m := &s.minutes[i]
		m.asked, m.held = m.asked+w, m.held+w*r.hold(name, q, x.Budget)
	}
	if m := e.Route.Mirror; m != nil && e.Refusal == nil {
		s := t.ssp(m.SSP.Name(), len(r.Strata))
		s.asked += weight * m.Share
		s.minutes[i].asked += weight * m.Share
		s.minutes[i].held += weight * m.Share * r.hold(m.SSP.Name(), q, e.Budget)
	}
}

func (t *tally) ssp(name string, strata int) *sspTally {
	s := t.ssps[name]
	if s == nil {
		s = &sspTally{minutes: make([]minute, strata)}
		t.ssps[name] = s
	}
	return s
}

// hold returns how long q would hold a place of the SSP, in seconds: as long as it did or, if it was not sent to the SSP,
// as the mean; at most as long as it may take. It returns 0 if no request has held a place.
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

// shares returns with which probability each SSP of e gets q.
func (r *replay) shares(q *sample.Request, e *proxy.Explanation) []float64 {
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
		if x.Filtered {
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

// fillRate returns the probability that an SSP fills q: whether it did or, if it was not asked, its share of fills.
func (r *replay) fillRate(q *sample.Request, ssp string) float64 {
	if a := askedOf(q, ssp); a != nil {
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

// poolOf says whether the pool of a part of the new configuration has enough places for what t has in its busiest minute.
func (r *replay) poolOf(p *reload.Part, t *sspTally) *advice.Fit {
	m := r.measured[p.Config.Name]
	if m == nil || m.holds == 0 || t.asked == 0 {
		return nil
	}
	var load, rate float64
	for i := range r.Strata {
		lengths, seen := r.Strata[i].Length.Seconds(), float64(r.Strata[i].Seen)
		if lengths < 10 && len(r.Strata) > 1 {
			continue // a minute that has just begun says little
		}
		var asked, held, weight float64
		for j := max(0, i-window/2); j <= min(len(r.Strata)-1, i+window/2); j++ {
			if s := &r.Strata[j]; len(s.Requests) > 0 {
				asked, held, weight = asked+t.minutes[j].asked, held+t.minutes[j].held, weight+float64(s.Seen)
			}
		}
		if weight == 0 || lengths == 0 {
			continue
		}
		if l := seen / lengths * held / weight; l > load {
			load, rate = l, seen/lengths*asked/weight
		}
	}
	if load == 0 {
		return nil
	}
	o := p.SSP.Pool().Options()
	return advice.FitOf(rate, time.Duration(load/rate*float64(time.Second)), r.protocolOf(p.Config.Name, &o), &o)
}

// protocolOf returns the protocol that a pool with these options would speak, as far as it is known.
func (r *replay) protocolOf(ssp string, o *pool.Options) exchange.Protocol {
	if o.Protocol != exchange.Unknown {
		return o.Protocol
	}
	return r.Protocol(ssp)
}

// overLimit returns how many requests a second are over the SSP's qps limit, which the replicas share.
func (r *replay) overLimit(p *reload.Part, t *sspTally, replicas int, seconds float64) float64 {
	limit := p.Config.QPS.Limit
	if limit <= 0 {
		return 0
	}
	if p.Config.SharesLimit() {
		limit /= float64(max(1, replicas))
	}
	over := 0.0
	for i := range r.Strata {
		if length := r.Strata[i].Length.Seconds(); length > 0 {
			over += max(0, t.minutes[i].asked-limit*length)
		}
	}
	return over / seconds
}
