package route

import (
	"adbuffer/internal/ssp"
)

// parallelFirst asks all SSPs at once; the first fill answers, and the others
// are abandoned. The caller runs no leg itself: it must be free to take the
// first fill in the instant in which it comes, however long a connection needs
// to let go of a leg.
func (rt *Route) parallelFirst(r *ssp.Request, p *Process) Result {
	f, err := rt.newFanout(r, p, true)
	if err != nil {
		return Result{Outcome: err.Outcome, Err: err}
	}
	defer f.leave()
	for i := range f.legs {
		f.start(&f.legs[i])
	}
	for range f.legs {
		l := <-f.ended
		l.back = true
		if decides(l.outcome) {
			return f.result(l)
		}
	}
	best := &f.legs[0]
	for i := range f.legs {
		if l := &f.legs[i]; rank(l.outcome) > rank(best.outcome) {
			best = l
		}
	}
	res := f.result(best)
	res.unfilled()
	return res
}
