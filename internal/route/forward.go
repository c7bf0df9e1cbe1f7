package route

import (
	"time"

	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// Process is what the requests of a process share, as far as modes with
// several legs need it.
type Process struct {
	// InFlight counts the legs of the parallel modes. The request itself is
	// counted by whoever calls Do, so that one with four legs counts five.
	InFlight *ssp.InFlight
	// Panicked is told of a leg that panicked, which ends as Internal. Legs call
	// it concurrently, and maybe after Do has returned.
	Panicked func(value any, stack []byte)
}

// Allow says whether the route takes a method, given the client's choice, and
// lists what it takes, as the field Allow does. HEAD has no place where an
// answer is made of several, or is whichever is first.
func (rt *Route) Allow(m upstream.Method, chosen *Target) (list string, ok bool) {
	if chosen == nil && (rt.Mode == ParallelFirst || rt.Mode == ParallelAll) {
		return "GET, POST", m != upstream.HEAD
	}
	return "GET, HEAD, POST", true
}

// Do sends r to the route's SSPs, by its mode, or to chosen alone where that is
// not nil. Allow must have allowed the method.
//
// When Do has returned, nothing reads r or the memory behind it any more: legs
// that may still run by then have a copy.
//
// The result's Outcome is what the request counts as. Single and Split: the
// SSP's. Waterfall and ParallelFirst: Fill where one filled; else NoBid where
// one had no bid, then that of the first SSP in the route that answered, then
// that of the first in the route. ParallelAll: Merged, whatever its legs did.
// All of them: ClientGone once a leg found that the client has left, and
// Overloaded where what the mode needs does not fit into the budget.
func (rt *Route) Do(r *ssp.Request, chosen *Target, p *Process) Result {
	if chosen != nil {
		return ask(r, chosen, r.Received)
	}
	switch rt.Mode {
	case Split:
		return ask(r, rt.pick(), r.Received)
	case Waterfall:
		return rt.waterfall(r)
	case ParallelFirst:
		return rt.parallelFirst(r, p)
	case ParallelAll:
		return rt.parallelAll(r, p)
	default:
		return ask(r, &rt.Targets[0], r.Received)
	}
}

// ask asks one SSP, on the caller's goroutine. queued is the time.
func ask(r *ssp.Request, t *Target, queued time.Time) Result {
	ex := upstream.AcquireExchange()
	ex.Times.Queued = queued
	outcome, err := t.SSP.Do(r, ex, t.Timeout)
	return Result{Exchange: ex, SSP: t.SSP, Outcome: outcome, Err: err}
}
