package route

import (
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// parallelFirst sends the request to all eligible SSPs at once. The first fill is the response, and the other legs are
// abandoned. If no SSP fills, a no-bid is the response, else another response, else a failure; among equals, that of
// the first SSP in the route.
func (rt *Route) parallelFirst(r *ssp.Request, p *Process) Result {
	f, err := rt.newFanout(r, p, true)
	if err != nil {
		return Result{Outcome: err.Outcome, Err: err}
	}
	defer f.detach()
	primaries, secondaries := f.startAll(r)
	asked := primaries + secondaries
	if asked == 0 {
		return rt.noneEligible(r, nil, f.legLog())
	}
	for range asked {
		l := <-f.ended
		l.received = true
		if isFinal(l.outcome) {
			return f.result(l)
		}
	}
	var best *leg
	for i := range f.legs {
		l := &f.legs[i]
		if l.outcome != exchange.Filtered && (best == nil || rank(l.outcome) > rank(best.outcome)) {
			best = l
		}
	}
	res := f.result(best)
	res.normalizeNoBid()
	return res
}
