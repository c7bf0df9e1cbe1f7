package route

import (
	"sync"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
)

// Result is the result of a request. Its owner must release it.
type Result struct {
	// Exchange holds the response, or is the exchange that failed; nil if no SSP got the request. The
	// document of parallel-all has an exchange of its own, whose response has no fields.
	Exchange *exchange.Exchange
	// SSP is the SSP of the response or the failure; nil if there are several.
	SSP *ssp.SSP
	// Outcome is the request's outcome.
	Outcome exchange.Outcome
	// NoAd says that the response is the route's no_ad, as if the request had ended with NoAdFor. It is set for
	// a merged response without a bid.
	NoAd    bool
	NoAdFor exchange.Outcome
	// Filled says that a Merged response has a bid, or the fill of an SSP.
	Filled bool
	// NBR is the no-bid reason that an OpenRTB no_ad response states.
	NBR int
	// Err says why there is no response; nil if there is a response.
	Err *exchange.Error
	// At is when the exchange with the only SSP ended. It is zero if several SSPs were asked, or if requests share
	// the connection. It saves a reading of the clock, 40 ns.
	At time.Time

	legs *legLog
}

// Status is the response's status, 0 without a response.
func (res *Result) Status() int {
	if res.Err != nil || res.Exchange == nil {
		return 0
	}
	return res.Exchange.Response.Status
}

// Legs returns the outcome of each leg, in the route's order, or nil if the route's mode asks only one SSP. The
// result is valid until Release.
func (res *Result) Legs() []logs.Leg {
	if res.legs == nil {
		return nil
	}
	return res.legs.all
}

// Release releases the result's exchange and its legs.
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

// legLog holds the legs of one request; reused.
type legLog struct{ all []logs.Leg }

var legLogs = sync.Pool{New: func() any { return new(legLog) }}

func newLegLog() *legLog {
	l := legLogs.Get().(*legLog)
	l.all = l.all[:0]
	return l
}

// add records a leg; ex is its exchange, or nil, and err says why there is no response.
func (l *legLog) add(s *ssp.SSP, o exchange.Outcome, took time.Duration, ex *exchange.Exchange, err *exchange.Error) {
	leg := logs.Leg{SSP: s.Name(), Outcome: o, Took: took, Failed: s.Failed(o, ex) && o != exchange.SSPDisabled, Err: err}
	if ex != nil {
		leg.Exchange = ex.Summary()
	}
	l.all = append(l.all, leg)
}

// rank orders outcomes for a request without a fill: a no-bid comes before any other response, a response
// before a failure, and a failure before an SSP that was not asked. Among equals the first SSP in the route wins.
func rank(o exchange.Outcome) int {
	switch {
	case o == exchange.NoBid:
		return 2
	case o.HasResponse():
		return 1
	case o.NotAsked():
		return -1
	default:
		return 0
	}
}

// isFinal reports whether a leg's outcome is the request's, whatever the other legs' outcomes are.
func isFinal(o exchange.Outcome) bool { return o == exchange.Fill || o == exchange.ClientGone }

// normalizeNoBid makes a no-bid a 204, even if the SSP sent a document with it.
func (res *Result) normalizeNoBid() {
	if res.Outcome != exchange.NoBid {
		return
	}
	response := &res.Exchange.Response
	if response.Status != 204 {
		// Its other fields describe the document.
		response.Status, response.Fields = 204, corsLines(response.Fields)
	}
	res.Exchange.ReleaseBody()
	response.ContentLength = -1
}
