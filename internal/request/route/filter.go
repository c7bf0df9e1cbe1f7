package route

import (
	"cmp"
	"slices"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

var errFiltered = &exchange.Error{
	Outcome: exchange.Filtered, Progress: exchange.NotSent,
	Detail: "no SSP is asked, since their conditions on the body do not hold; see ssps[].when and routes[].ssps[].when",
}

// Eligible reports whether t may get r: its conditions on the body hold, and the body can be edited for its SSP. counts says
// whether the decision of conditions with TCF is counted.
func (t *Target) Eligible(r *ssp.Request, counts bool) bool {
	return t.conditionsHold(r, counts) && canEdit(t.SSP, r)
}

// conditionsHold reports whether the conditions of t on the body hold. counts is that of Eligible.
func (t *Target) conditionsHold(r *ssp.Request, counts bool) bool {
	hold, d, decided := r.Facts.DecideConsent(t.when)
	if counts && decided {
		t.SSP.Decided(d)
	}
	return hold
}

// EditError says why the body cannot be edited for the target's SSP; nil if it can be, or needs no edit.
func (t *Target) EditError(r *ssp.Request) *exchange.Error {
	if canEdit(t.SSP, r) {
		return nil
	}
	why := cmp.Or(r.Unreadable, openrtb.WrongType)
	return &exchange.Error{Outcome: exchange.BadRequest, Progress: exchange.NotSent, Detail: ssp.CannotEdit(why)}
}

// NoneEligible is the error of a request for which no SSP is eligible. It is the client's fault if the conditions of an SSP
// that might have been asked hold: then the body cannot be edited for that SSP. chosen is the client's choice, or nil.
func (rt *Route) NoneEligible(r *ssp.Request, chosen *Target) *exchange.Error {
	for i := range rt.Targets {
		t := &rt.Targets[i]
		if rt.MayAsk(t, chosen) && t.conditionsHold(r, false) {
			return t.EditError(r)
		}
	}
	return errFiltered
}

// MayAsk reports whether the route's mode and the client's choice allow that t is asked. Split never draws a target without
// a weight.
func (rt *Route) MayAsk(t, chosen *Target) bool {
	if chosen != nil {
		return t == chosen
	}
	return rt.Mode != Split || t.Weight > 0
}

// canEdit reports whether the body can be edited for s, or needs no edit.
func canEdit(s *ssp.SSP, r *ssp.Request) bool {
	return s.Edit() == nil || r.Unreadable == openrtb.Readable && !slices.Contains(r.Misfits, s.Edit())
}

// noneEligible is the result of a request for which no SSP is eligible. legs holds the SSPs that were skipped.
func (rt *Route) noneEligible(r *ssp.Request, chosen *Target, legs *legLog) Result {
	err := rt.NoneEligible(r, chosen)
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
		if t.Eligible(r, true) {
			return t
		}
		t.skip(legs)
	}
	return nil
}
