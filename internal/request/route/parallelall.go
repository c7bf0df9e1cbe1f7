package route

import (
	"slices"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// parallelAll sends the request to all eligible SSPs at once. When the primaries have ended, it responds
// with the responses of all SSPs. Secondaries that still run are abandoned. If no primary is asked,
// because of its conditions or its shaper, it waits for the secondaries.
func (rt *Route) parallelAll(r *ssp.Request, p *Process) Result {
	f, err := rt.newFanout(r, p, rt.abandons)
	if err != nil {
		return Result{Outcome: err.Outcome, Err: err}
	}
	defer f.detach()
	f.request.WantsUncoded = true
	primaries, secondaries := f.startAll(r)
	if primaries+secondaries == 0 {
		return rt.noneEligible(r, nil, f.legLog())
	}
	gone, asked := false, false // asked: a primary was asked
	for primaries > 0 || !asked && secondaries > 0 || len(f.ended) > 0 {
		l := <-f.ended
		l.received = true
		gone = gone || l.outcome == exchange.ClientGone
		if l.target.Secondary {
			secondaries--
		} else {
			primaries--
			asked = asked || !l.outcome.NotAsked()
		}
	}
	if gone {
		return Result{Outcome: exchange.ClientGone, Err: exchange.ErrClientGone, legs: f.legLog()}
	}
	if err := f.noneAsked(); err != nil {
		return Result{Outcome: err.Outcome, Err: err, legs: f.legLog()}
	}
	if rt.MergeOpenRTB {
		return f.merged(r)
	}
	return f.envelope(r.Budget)
}

// envelope builds the response of parallel-all: an entry for each leg, in the route's order. While the envelope is
// built, the legs' bodies and their copies in it are in memory together, and both count in the budget.
func (f *fanout) envelope(b *exchange.Budget) Result {
	log := f.legLog()
	n := envelopeOverhead
	for i := range f.legs {
		l := &f.legs[i]
		l.entry = l.envelopeEntry()
		n += l.entry.bound()
	}
	ex, err := newCombined(b, n)
	if err != nil {
		return Result{Outcome: err.Outcome, Err: err, legs: log}
	}
	body, filled := append(ex.Response.Body, envelopeStart...), false
	for i := range f.legs {
		if i > 0 {
			body = append(body, ',')
		}
		l := &f.legs[i]
		filled = filled || l.received && l.outcome == exchange.Fill
		body = l.entry.append(body)
		if l.received {
			l.releaseExchange()
		}
	}
	ex.Response.Body = append(body, envelopeEnd...)
	return Result{Exchange: ex, Outcome: exchange.Merged, Filled: filled, legs: log}
}

// newCombined returns an exchange for a response of up to n bytes that adbuffer makes of several responses. It fails if
// the budget does not allow it.
func newCombined(b *exchange.Budget, n int) (*exchange.Exchange, *exchange.Error) {
	ex := exchange.AcquireExchange()
	ex.Budget = b
	if err := ex.Reserve(n); err != nil {
		ex.Release()
		return nil, exchange.AsError(err)
	}
	ex.Response.Body, ex.Response.Status = slices.Grow(ex.Response.Body, n), 200
	return ex, nil
}

func (l *leg) envelopeEntry() entry {
	e := entry{ssp: l.target.SSP.Name()}
	switch {
	case !l.received:
		e.err, e.omitMS = "not_waited", true
	case l.outcome == exchange.SSPDisabled, l.outcome.NotAsked(): // its request was not sent
		e.err, e.omitMS = l.outcome.String(), true
	case l.err != nil:
		e.err, e.took = l.err.Outcome.String(), l.took()
	default:
		response := &l.ex.Response
		e.status, e.took = response.Status, l.took()
		e.describe(response.Fields, response.Body)
	}
	return e
}
