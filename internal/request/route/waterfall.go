package route

import (
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// waterfall sends the request to one SSP after the other until one fills, all on the caller's
// goroutine. A tier's timeout starts with its leg. The request's deadline ends the current tier;
// later tiers get no request.
func (rt *Route) waterfall(r *ssp.Request) Result {
	legs := newLegLog()
	var best Result
	asked, ended := false, false
	defer func() {
		if !ended { // a tier panicked
			best.Release()
		}
	}()
	for i := range rt.Targets {
		t := &rt.Targets[i]
		if !t.Eligible(r, true) {
			t.skip(&legs)
			continue
		}
		now := r.Received
		if asked {
			now = time.Now()
			if !now.Before(r.Deadline) {
				break
			}
			if r.Gone != nil && r.Gone() {
				best.Release()
				best = Result{SSP: best.SSP, Outcome: exchange.ClientGone, Err: exchange.ErrClientGone}
				break
			}
		}
		tier := sendTo(r, t, now)
		legs.add(tier.SSP, tier.Outcome, tier.Exchange.Times.Done.Sub(now), tier.Exchange, tier.Err)
		if asked && !isFinal(tier.Outcome) && rank(tier.Outcome) <= rank(best.Outcome) {
			tier.Release()
			continue
		}
		asked = true
		best.Release()
		best = tier
		if isFinal(tier.Outcome) {
			break
		}
	}
	ended = true
	if !asked {
		return rt.noneEligible(r, nil, legs)
	}
	best.legs = legs
	best.normalizeNoBid()
	return best
}
