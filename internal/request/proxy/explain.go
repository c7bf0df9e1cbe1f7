package proxy

import (
	"bytes"
	"cmp"
	"net/netip"
	"sync"
	"time"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tcf"
)

// Explanation says how a request would be handled. The request is not sent.
type Explanation struct {
	ID     string
	Client netip.Addr // after the route's privacy; zero if the request is refused earlier
	// Route is nil if no route matches. Chosen is the client's choice of an SSP, or nil.
	Route  *route.Route
	Chosen *route.Target
	// Passed are the routes before Route of which only the conditions on the body do not hold. Unreadable says
	// why the body matches no condition. Body is set only if a condition depends on it.
	Passed     []*route.Route
	Unreadable openrtb.Reason
	Body       []byte
	Consent    *tcf.Consent // of conditions with TCF
	// Budget is the time that SSPs would have, and BudgetFrom the field or setting that determines it.
	Budget     time.Duration
	BudgetFrom string
	// IgnoredTmax says why Budget does not follow from the body's tmax, as a clause in which "it" is tmax; empty without a body.
	IgnoredTmax string
	// FairValue is the request's value of server.fairness.key; empty if it has none.
	FairValue string
	// Undecided says that a sampled request has no body, on which the route or the SSPs depend. Then all else is zero.
	Undecided bool
	// Refusal is adbuffer's response if no SSP would get the request, and nil otherwise.
	Refusal  *http1.Refusal
	Requests []ExplainedRequest // one for each SSP that may get the request, in the route's order
	Mirror   *ExplainedRequest  // to the route's mirror; nil without a mirror, or if the request is refused

	replayed bool   // by Replay, which leaves out Query, Dropped and Shaping
	memory   []byte // of the bytes of Requests and Mirror
}

// explanations has the released results of Replay.
var explanations = sync.Pool{New: func() any { return new(Explanation) }}

// maxKeptExplained bounds the memory that a released Explanation keeps for the next one.
const maxKeptExplained = 256 << 10

// Release lets a later Replay reuse e, a result of Replay, and its memory. The caller must not use e, or the bytes of its
// requests, any more.
func (e *Explanation) Release() {
	clear(e.Requests)
	*e = Explanation{Requests: e.Requests[:0], memory: e.memory[:0]}
	if cap(e.memory) > maxKeptExplained {
		e.memory = nil
	}
	explanations.Put(e)
}

// ExplainedRequest is the request that an SSP would get.
type ExplainedRequest struct {
	Target  *route.Target
	Query   []byte // the client's part of the request target
	Request exchange.Request
	Err     *exchange.Error // why Request is empty, or nil
	Dropped []string        // the client's fields that are not forwarded to the SSP, each with the setting that decides so
	// Budget is the time that this SSP would have, and BudgetFrom the field or setting that determines it.
	Budget     time.Duration
	BudgetFrom string
	// Filtered says that the SSP is not asked, since its conditions on the body do not hold, or since the body cannot be
	// edited for it: then Err says why.
	Filtered bool
	// Edited says that Request has another body than the client's, before it is compressed.
	Edited bool
	// Shaping is what qps.shape knows of the request; nil without it.
	Shaping *ssp.Shaping
}

// Explain says how message, an HTTP/1.1 request of a client at peer, would be handled. It runs the same
// code as a real request, and stops before the first attempt. hostOf returns the host of an endpoint of
// the named SSP.
func (p *Proxy) Explain(message []byte, peer netip.Addr, hostOf func(ssp string) string) *Explanation {
	e := new(Explanation)
	err := p.WithMessage(message, peer, func(c *http1.Conn) { p.explain(e, c, hostOf) })
	if err != nil {
		e.Refusal = http1.Malformed("the message is no complete request: " + err.Error())
	}
	return e
}

func (p *Proxy) explain(e *Explanation, c *http1.Conn, hostOf func(ssp string) string) {
	x := p.newHTTP1Request(c)
	defer x.Release()
	r := x.request
	defer p.releaseRequest(r)
	r.search.Explaining = true
	f := x.untilFirstAttempt()
	if facts := r.search.Facts(); facts != nil {
		e.Passed, e.Unreadable, e.Body = r.table.Passed(&r.fields, r.route), facts.Reason, bytes.Clone(r.body)
		e.Consent = facts.Consent
	}
	e.complete(r, f, hostOf)
}

// complete explains r once the steps before the first attempt have run, of which f is the result.
func (e *Explanation) complete(r *request, f *refusal, hostOf func(ssp string) string) {
	e.ID, e.Route, e.Chosen = string(r.requestID()), r.route, r.target
	if r.ssp.Identity != nil {
		e.Client = r.identity.Client()
		if !r.ssp.Deadline.IsZero() {
			e.Budget, e.BudgetFrom, e.IgnoredTmax = r.ssp.Deadline.Sub(r.started), r.ssp.DeadlineFrom, r.ignoredTmax.text()
		}
	}
	if f != nil {
		e.Refusal = f
		return
	}
	if k := r.ssp.Fairness; k != nil {
		e.FairValue = string(k.Value(&r.ssp))
	}
	r.ssp.WantsUncoded = r.route.Mode == route.ParallelAll && r.target == nil
	asked := false
	for i := range r.route.Targets {
		t := &r.route.Targets[i]
		if asked && r.route.Mode == route.Single {
			break
		}
		if !r.route.MayAsk(t, r.target) {
			continue
		}
		x := e.explainTarget(r, t, hostOf)
		asked = asked || !x.Filtered
		e.Requests = append(e.Requests, x)
	}
	if !asked {
		err := r.route.NoneEligible(&r.ssp, r.target)
		e.Refusal = &refusal{Outcome: err.Outcome, Detail: cmp.Or(err.Text(), "the conditions of no SSP on the body hold; the response is the route's no_ad")}
	}
	if m := r.route.Mirror; m != nil && asked {
		x := e.explainTarget(r, m.Target(), hostOf)
		e.Mirror = &x
	}
}

// explainTarget returns the request that the SSP of t would get for r.
func (e *Explanation) explainTarget(r *request, t *route.Target, hostOf func(ssp string) string) ExplainedRequest {
	if !t.Eligible(&r.ssp, false) {
		return ExplainedRequest{Target: t, Filtered: true, Err: t.EditError(&r.ssp)}
	}
	x := ExplainedRequest{Target: t}
	x.Request, e.memory, x.Err = t.SSP.Preview(&r.ssp, hostOf(t.SSP.Name()), t.Timeout, e.memory)
	if !e.replayed {
		x.Query, x.Dropped, x.Shaping = bytes.Clone(r.ssp.Query), t.SSP.Policy().Dropped(r.ssp.Fields, r.ssp.Identity), t.SSP.Shaping(&r.ssp)
	}
	x.Budget, x.BudgetFrom = t.SSP.Limit(&r.ssp, t.Timeout)
	changes := t.SSP.Edit() != nil || t.SSP.RewritesTmax()
	x.Edited = x.Err == nil && changes && !bytes.Equal(x.Request.Body, r.ssp.Body)
	return x
}

// untilFirstAttempt runs the steps of handle that come before the first attempt.
func (x *http1Request) untilFirstAttempt() *refusal {
	p, r := x.proxy, x.request
	f := x.checkHead()
	if f != nil {
		if rt := r.preflightRoute(); f.Outcome == exchange.MethodNotAllowed && rt != nil {
			origin, _ := r.fields.Lookup("Origin")
			detail := "adbuffer responds to the preflight; "
			switch list := "cors.origins of route " + rt.Name; {
			case len(origin) == 0:
				detail += "the request has no Origin"
			case rt.CORS.Allows(origin):
				detail += list + " contains the request's Origin"
			default:
				detail += list + " does not contain the request's Origin, so browsers send no request"
			}
			return &refusal{Outcome: exchange.Fill, Status: statusNoContent, Detail: detail}
		}
		return f
	}
	f = r.findRouteOrHealth()
	if f == nil {
		f = p.readBody(r)
	}
	if f == nil {
		f = p.prepare(r)
	}
	return f
}

// findRouteOrHealth is findRoute, except that it explains adbuffer's own response to server.health_path.
func (r *request) findRouteOrHealth() *refusal {
	if r.opts.HealthPath != "" && string(r.fields.Path) == r.opts.HealthPath {
		return &refusal{Outcome: exchange.Fill, Status: 200, Detail: "server.health_path: adbuffer responds whether it is ready"}
	}
	return r.findRoute()
}
