package route

import (
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// Result is how a request ended. Its Exchange holds the answer; whoever has the
// result releases it.
type Result struct {
	// Exchange is the one whose answer goes to the client, or the last that
	// failed; nil where none was made.
	Exchange *upstream.Exchange
	// SSP is whose answer, or whose failure, it is.
	SSP     *ssp.SSP
	Outcome upstream.Outcome
	// Err is why there is no answer, nil where there is one.
	Err *upstream.Error
}

// Do sends r to the route's SSPs, by its mode, or to chosen alone where that is
// not nil.
func (rt *Route) Do(r *ssp.Request, chosen *Target) Result {
	if chosen == nil {
		chosen = &rt.Targets[0]
	}
	return single(r, chosen)
}

// single asks one SSP, on the caller's goroutine.
func single(r *ssp.Request, t *Target) Result {
	ex := upstream.AcquireExchange()
	ex.Times.Queued = r.Received
	outcome, err := t.SSP.Do(r, ex, t.Timeout)
	return Result{Exchange: ex, SSP: t.SSP, Outcome: outcome, Err: err}
}

// Status is the answer's status, 0 where there is none.
func (res *Result) Status() int {
	if res.Err != nil || res.Exchange == nil {
		return 0
	}
	return res.Exchange.Answer.Status
}

// Release gives the result's exchange up.
func (res *Result) Release() {
	if res.Exchange != nil {
		res.Exchange.Release()
		res.Exchange = nil
	}
}
