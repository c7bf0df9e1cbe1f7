package route

import (
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// Process holds what all routes of the process share: legs and mirrored requests use it.
type Process struct {
	// InFlight counts the legs of the parallel modes. The caller of Do counts the request itself,
	// so a request with four legs counts five.
	InFlight *ssp.InFlight
	// Panicked is called for a leg or a mirrored request that panicked, which ends as Internal. It
	// may be called concurrently, and after Do has returned.
	Panicked func(value any, stack []byte)
}

// Allow reports whether the route accepts the method, and lists the methods that it accepts, for the field Allow. chosen
// is the target that the client has chosen, or nil. The parallel modes do not accept HEAD.
func (rt *Route) Allow(m exchange.Method, chosen *Target) (list string, ok bool) {
	if chosen == nil && (rt.Mode == ParallelFirst || rt.Mode == ParallelAll) {
		return "GET, POST", m != exchange.HEAD
	}
	return "GET, HEAD, POST", true
}

// Do sends r to the SSPs of the route, as its mode says, or only to chosen if chosen is not nil. Allow must have accepted
// the method.
//
// After Do has returned, no goroutine reads r or the memory that r refers to: legs that still run have a copy.
//
// The result's Outcome depends on the mode:
//
//   - Single and Split: the outcome of the SSP that got the request.
//   - ParallelAll: Merged, whatever the outcomes of the legs are.
//   - Waterfall and ParallelFirst: Fill if an SSP filled, else NoBid if an SSP had no bid, else the outcome of the first
//     SSP in the route that responded, else the outcome of the first SSP in the route that was asked.
//   - All modes: Filtered if no SSP's conditions hold; Shaped if all SSPs whose conditions hold drop the request;
//     BadRequest if the conditions of an SSP hold, but the body cannot be edited for any such SSP; ClientGone if a
//     leg found that the client has closed its connection; Overloaded if the budget lacks the memory that the mode
//     needs.
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
		return rt.noneEligible(r, chosen, skipped)
	}
	return sendToOne(r, t, skipped)
}

// only returns the one target that gets r: chosen if chosen is not nil, otherwise the target that the route's mode
// selects. It returns nil if no target is eligible.
func (rt *Route) only(r *ssp.Request, chosen *Target, skipped **legLog) *Target {
	switch {
	case chosen != nil && chosen.Eligible(r, true):
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

// sendToOne sends the request to t, the only SSP that gets it. skipped lists the SSPs passed over before t; nil = none.
// If there are any, t is added to the list for the log.
func sendToOne(r *ssp.Request, t *Target, skipped *legLog) Result {
	res := sendTo(r, t, r.Received)
	if res.Exchange.Protocol == exchange.HTTP1 {
		// On an exclusive connection this goroutine has set Done itself, so Done is still the current time. On a shared
		// one Done may be older: At stays zero, and writeResponse reads the clock.
		res.At = res.Exchange.Times.Done
	}
	if skipped != nil {
		skipped.add(t.SSP, res.Outcome, res.Exchange.Times.Done.Sub(r.Received), res.Exchange, res.Err)
		res.legs = skipped
	}
	return res
}

// sendTo sends the request to one SSP, on the caller's goroutine. queued is the time from which the request waits for a
// place.
func sendTo(r *ssp.Request, t *Target, queued time.Time) Result {
	ex := exchange.AcquireExchange()
	ex.Times.Queued, ex.Context = queued, r.Context
	outcome, err := t.SSP.Do(r, ex, t.Timeout)
	return Result{Exchange: ex, SSP: t.SSP, Outcome: outcome, Err: err}
}
