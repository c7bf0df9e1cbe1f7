package route

import (
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

var errFiltered = &exchange.Error{
	Outcome: exchange.Filtered, Progress: exchange.NotSent,
	Detail: "no SSP is asked, since their conditions on the body do not hold; see routes[].ssps[].when",
}

// Eligible reports whether t may get r: its conditions on the body hold, and the members that its SSP must
// not get can be removed.
func (t *Target) Eligible(r *ssp.Request) bool {
	return (len(t.when) == 0 || r.Facts.HoldAll(t.when)) && canRemove(t.SSP, r)
}

// canRemove reports whether the members that s must not get can be removed from the body.
func canRemove(s *ssp.SSP, r *ssp.Request) bool {
	return r.Unreadable == openrtb.Readable || s.Removes() == nil
}

// NoneEligible returns the error of a request for which no SSP is eligible.
func NoneEligible(r *ssp.Request) *exchange.Error {
	if r.Unreadable != openrtb.Readable {
		return exchange.Errorf(exchange.BadRequest, exchange.NotSent, "ssps[].remove cannot read the body: %s", r.Unreadable.Text())
	}
	return errFiltered
}

// noneEligible is the result of a request for which no SSP is eligible. legs holds the SSPs that were skipped.
func noneEligible(r *ssp.Request, legs *legLog) Result {
	err := NoneEligible(r)
	return Result{Outcome: err.Outcome, Err: err, legs: legs}
}

// skip counts t, which is not eligible, as Filtered, and adds it to *legs. *legs is nil before the first
// skipped target.
func (t *Target) skip(legs **legLog) {
	t.SSP.Refused(exchange.Filtered)
	if *legs == nil {
		*legs = newLegLog()
	}
	(*legs).add(t.SSP, exchange.Filtered, 0, nil, nil)
}

// first returns the first eligible target, or nil.
func (rt *Route) first(r *ssp.Request, legs **legLog) *Target {
	for i := range rt.Targets {
		t := &rt.Targets[i]
		if t.Eligible(r) {
			return t
		}
		t.skip(legs)
	}
	return nil
}
