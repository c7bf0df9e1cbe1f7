package route

import (
	"sync"
	"time"

	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// Result is how a request ended. Whoever has it releases it.
type Result struct {
	// Exchange holds the answer, or is the one that failed; nil where none was
	// made. The envelope of parallel-all stands in one of its own, whose answer
	// has no fields.
	Exchange *upstream.Exchange
	// SSP is whose answer, or whose failure, it is; nil where it is no single
	// one's.
	SSP *ssp.SSP
	// Outcome is what the request counts as.
	Outcome upstream.Outcome
	// Err is why there is no answer, nil where there is one.
	Err *upstream.Error

	legs *legLog
}

// Status is the answer's status, 0 where there is none.
func (res *Result) Status() int {
	if res.Err != nil || res.Exchange == nil {
		return 0
	}
	return res.Exchange.Response.Status
}

// Legs returns how each SSP fared that was asked, in the route's order; nil
// where no more than one can be. They are the result's, until Release.
func (res *Result) Legs() []Leg {
	if res.legs == nil {
		return nil
	}
	return res.legs.all
}

// Release gives up the result's exchange and its legs.
func (res *Result) Release() {
	if res.Exchange != nil {
		res.Exchange.Release()
		res.Exchange = nil
	}
	if res.legs != nil {
		clear(res.legs.all)
		legLogs.Put(res.legs)
		res.legs = nil
	}
}

// Leg is one SSP's part in a request.
type Leg struct {
	SSP *ssp.SSP
	// Outcome is Cancelled where the leg was abandoned.
	Outcome upstream.Outcome
	// Took is until it ended, or was abandoned.
	Took time.Duration
	// Exchange is the zero Summary where the SSP was not asked, or the leg was
	// abandoned.
	Exchange upstream.Summary
}

// legLog is the legs of one request; reused.
type legLog struct{ all []Leg }

var legLogs = sync.Pool{New: func() any { return new(legLog) }}

func newLegLog() *legLog {
	l := legLogs.Get().(*legLog)
	l.all = l.all[:0]
	return l
}

// add notes a leg; ex is its exchange, nil for none.
func (l *legLog) add(s *ssp.SSP, o upstream.Outcome, took time.Duration, ex *upstream.Exchange) {
	leg := Leg{SSP: s, Outcome: o, Took: took}
	if ex != nil {
		leg.Exchange = ex.Summary()
	}
	l.all = append(l.all, leg)
}

// rank orders what may answer where nobody filled: a no-bid before any other
// answer, and that before a failure. Among equals the first in the route
// answers.
func rank(o upstream.Outcome) int {
	switch {
	case o == upstream.NoBid:
		return 2
	case o.HasResponse():
		return 1
	default:
		return 0
	}
}

// decides reports whether a leg's end is the request's, whatever the others
// have to say.
func decides(o upstream.Outcome) bool { return o == upstream.Fill || o == upstream.ClientGone }

// unfilled makes the best of what there is where nobody filled: a no-bid is
// answered as 204, also one that was said with a document.
func (res *Result) unfilled() {
	if res.Outcome != upstream.NoBid {
		return
	}
	a := &res.Exchange.Response
	if a.Status != 204 {
		// Its fields describe the document.
		a.Status, a.Fields = 204, a.Fields[:0]
	}
	res.Exchange.ReleaseBody()
	a.ContentLength = -1
}
