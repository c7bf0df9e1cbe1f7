package route

import (
	"slices"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

var errFiltered = &exchange.Error{
	Outcome: exchange.Filtered, Progress: exchange.NotSent,
	Detail: "no SSP is asked, since their conditions on the body do not hold; see ssps[].when and routes[].ssps[].when",
}

// Eligible reports whether t may get r: its conditions on the body hold, and the body can be edited for its SSP.
func (t *Target) Eligible(r *ssp.Request) bool {
	return (len(t.when) == 0 || r.Facts.HoldAll(t.when)) && canEdit(t.SSP, r)
}

// eligible is Eligible, and counts the decision of conditions with TCF.
func (t *Target) eligible(r *ssp.Request) bool { return t.admits(r) && canEdit(t.SSP, r) }

// admits reports whether the conditions of t on the body hold, and counts the decision of those with TCF.
func (t *Target) admits(r *ssp.Request) bool {
	if len(t.when) == 0 {
		return true
	}
	if d, ok := r.Facts.DecideConsent(t.when); ok {
		t.SSP.Decided(d)
	}
	return r.Facts.HoldAll(t.when)
}

// EditError says why the body cannot be edited for the target's SSP; nil if it can be, or needs no edit.
func (t *Target) EditError(r *ssp.Request) *exchange.Error {
	if canEdit(t.SSP, r) {
		return nil
	}
	return noEdit(r)
}

// noEdit says why the body cannot be edited for at least one SSP; nil if it can be for all.
func noEdit(r *ssp.Request) *exchange.Error {
	why := r.Unreadable
	if len(r.Misfits) > 0 {
		why = openrtb.WrongType
	}
	if why == openrtb.Readable {
		return nil
	}
	return &exchange.Error{Outcome: exchange.BadRequest, Progress: exchange.NotSent, Detail: ssp.CannotEdit(why)}
}

// NoneEligible is the error of a request for which no SSP is eligible.
func NoneEligible(r *ssp.Request) *exchange.Error {
	if err := noEdit(r); err != nil {
		return err
	}
	return errFiltered
}

// canEdit reports whether the body can be edited for s, or needs no edit.
func canEdit(s *ssp.SSP, r *ssp.Request) bool {
	return s.Edit() == nil || r.Unreadable == openrtb.Readable && !slices.Contains(r.Misfits, s.Edit())
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
		if t.eligible(r) {
			return t
		}
		t.skip(legs)
	}
	return nil
}
