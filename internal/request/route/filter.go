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

// Asks reports whether t's conditions on the body hold, and the members that its SSP must not get can be removed.
func (t *Target) Asks(r *ssp.Request) bool {
	return (len(t.when) == 0 || r.Facts.HoldAll(t.when)) && mayGet(t.SSP, r)
}

// mayGet reports whether the members that s must not get can be removed from the body.
func mayGet(s *ssp.SSP, r *ssp.Request) bool {
	return r.Unreadable == openrtb.Readable || s.Removes() == nil
}

// nothingToAsk is the error of a request for which no SSP is asked.
func nothingToAsk(r *ssp.Request) *exchange.Error {
	if r.Unreadable == openrtb.Readable {
		return errFiltered
	}
	return exchange.Errorf(exchange.BadRequest, exchange.NotSent, "ssps[].remove cannot read the body: %s", r.Unreadable.Text())
}

// filtered notes that t is not asked, in legs, which is nil before the first one.
func (t *Target) filtered(legs **legLog) {
	t.SSP.Refused(exchange.Filtered)
	if *legs == nil {
		*legs = newLegLog()
	}
	(*legs).add(t.SSP, exchange.Filtered, 0, nil)
}

// first returns the first target that is asked, or nil.
func (rt *Route) first(r *ssp.Request, legs **legLog) *Target {
	for i := range rt.Targets {
		t := &rt.Targets[i]
		if t.Asks(r) {
			return t
		}
		t.filtered(legs)
	}
	return nil
}

// sendToOne sends the request to t, the only SSP that is asked; nil if none is. legs are the SSPs that were
// not asked instead, or nil.
func sendToOne(r *ssp.Request, t *Target, legs *legLog) Result {
	if t == nil {
		err := nothingToAsk(r)
		return Result{Outcome: err.Outcome, Err: err, legs: legs}
	}
	res := sendTo(r, t, r.Received)
	if res.Exchange.Protocol == exchange.HTTP1 {
		res.At = res.Exchange.Times.Done // otherwise another goroutine read the clock, and this one may have waited for CPU
	}
	if legs != nil {
		legs.add(t.SSP, res.Outcome, res.Exchange.Times.Done.Sub(r.Received), res.Exchange)
		res.legs = legs
	}
	return res
}
