package route

import (
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// Process holds the state that all requests share in modes with several legs.
type Process struct {
	// InFlight counts the legs of the parallel modes. The caller of Do counts the request itself,
	// so a request with four legs counts five.
	InFlight *ssp.InFlight
	// Panicked is called for a leg that panicked, which ends as Internal. Legs call it
	// concurrently, and perhaps after Do has returned.
	Panicked func(value any, stack []byte)
}

// Allow reports whether the route accepts a method, given the client's choice, and lists the
// methods that it accepts, for the field Allow. A mode that combines several responses, or takes
// the first one, does not accept HEAD.
func (rt *Route) Allow(m exchange.Method, chosen *Target) (list string, ok bool) {
	if chosen == nil && (rt.Mode == ParallelFirst || rt.Mode == ParallelAll) {
		return "GET, POST", m != exchange.HEAD
	}
	return "GET, HEAD, POST", true
}

// Do sends r to the route's SSPs, by its mode, or only to chosen if that is not nil. Allow must
// have accepted the method.
//
// After Do has returned, no goroutine reads r or the memory behind it: legs that still run have a
// copy.
//
// The result's Outcome is the request's. Single and Split: the SSP's. ParallelAll: Merged, with any
// outcomes of its legs. Waterfall and ParallelFirst: Fill if an SSP filled, else NoBid if one had
// no bid. Otherwise it is the outcome of the first SSP in the route that responded, or else of the
// first SSP in the route. All modes: Filtered if the conditions of no SSP hold, BadRequest if no SSP may get the
// body because what must be removed from it cannot be read, ClientGone after a leg
// found that the client has closed, and Overloaded if the mode needs more than the budget has.
func (rt *Route) Do(r *ssp.Request, chosen *Target, p *Process) Result {
	if rt.Mirror != nil {
		rt.Mirror.send(r, p)
	}
	if chosen == nil {
		switch rt.Mode {
		case Waterfall:
			return rt.waterfall(r)
		case ParallelFirst:
			return rt.parallelFirst(r, p)
		case ParallelAll:
			return rt.parallelAll(r, p)
		}
	}
	var skipped *legLog
	t := rt.only(r, chosen, &skipped)
	if t == nil {
		return noneEligible(r, skipped)
	}
	return sendToOne(r, t, skipped)
}

// only returns the only target that gets r: chosen if that is not nil, otherwise by the route's mode. It returns
// nil if no target is eligible.
func (rt *Route) only(r *ssp.Request, chosen *Target, skipped **legLog) *Target {
	switch {
	case chosen != nil && chosen.Eligible(r):
		return chosen
	case chosen != nil:
		chosen.skip(skipped)
		return nil
	case rt.Mode == Split:
		return rt.pick(r, skipped)
	default:
		return rt.first(r, skipped)
	}
}

// sendToOne sends the request to t, the only SSP that gets it. legs holds the SSPs that were skipped before t,
// nil if there were none.
func sendToOne(r *ssp.Request, t *Target, legs *legLog) Result {
	res := sendTo(r, t, r.Received)
	if res.Exchange.Protocol == exchange.HTTP1 {
		res.At = res.Exchange.Times.Done // otherwise another goroutine read the clock, and this one may have waited for CPU
	}
	if legs != nil {
		legs.add(t.SSP, res.Outcome, res.Exchange.Times.Done.Sub(r.Received), res.Exchange, res.Err)
		res.legs = legs
	}
	return res
}

// sendTo sends the request to one SSP, on the caller's goroutine. queued is the current time.
func sendTo(r *ssp.Request, t *Target, queued time.Time) Result {
	ex := exchange.AcquireExchange()
	ex.Times.Queued, ex.Context = queued, r.Context
	outcome, err := t.SSP.Do(r, ex, t.Timeout)
	return Result{Exchange: ex, SSP: t.SSP, Outcome: outcome, Err: err}
}
