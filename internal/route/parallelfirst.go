package route

import (
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// parallelFirst sends the request to all SSPs at once. The first fill is the response, and the
// other legs are abandoned. The caller runs no leg itself, so that it can receive the first fill at
// once. A connection may take long to abandon another leg.
func (rt *Route) parallelFirst(r *ssp.Request, p *Process) Result {
	f, err := rt.newFanout(r, p, true)
	if err != nil {
		return Result{Outcome: err.Outcome, Err: err}
	}
	defer f.detach()
	asked := f.filter(r)
	if asked == 0 {
		return sendToOne(r, nil, f.legLog())
	}
	for i := range f.legs {
		if l := &f.legs[i]; !l.received {
			f.start(l)
		}
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
		if l.outcome != upstream.Filtered && (best == nil || rank(l.outcome) > rank(best.outcome)) {
			best = l
		}
	}
	res := f.result(best)
	res.normalizeNoBid()
	return res
}
