package route

import (
	"time"

	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// waterfall asks one SSP after the other until one fills, all on the caller's
// goroutine. A tier's timeout starts when it is asked; the one deadline ends
// them all, and those whose turn has not come by then are not asked.
func (rt *Route) waterfall(r *ssp.Request) Result {
	legs := newLegLog()
	var best Result
	for i := range rt.Targets {
		now := r.Received
		if i > 0 {
			if now = time.Now(); !now.Before(r.Deadline) {
				break
			}
			if r.Gone != nil && r.Gone() {
				best.Release()
				best = Result{SSP: best.SSP, Outcome: upstream.ClientGone, Err: errClientGone}
				break
			}
		}
		tier := ask(r, &rt.Targets[i], now)
		legs.add(tier.SSP, tier.Outcome, tier.Exchange.Times.Done.Sub(now), tier.Exchange)
		if i > 0 && !decides(tier.Outcome) && rank(tier.Outcome) <= rank(best.Outcome) {
			tier.Release()
			continue
		}
		best.Release()
		if best = tier; decides(tier.Outcome) {
			break
		}
	}
	best.legs = legs
	best.unfilled()
	return best
}

var errClientGone = &upstream.Error{Outcome: upstream.ClientGone, Progress: upstream.NotSent}
