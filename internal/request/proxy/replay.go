package proxy

import (
	"adbuffer/internal/client/http1"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/sample"
)

// Replay says how q would be handled, as Explain does. Where match.holdback leaves it to chance which route gets the
// request, Replay calls visit for each of them, with its probability. The callee of visit owns e, and should release it.
// Explanations of a replay lack Query, Dropped and Shaping.
func (p *Proxy) Replay(q *sample.Request, hostOf func(ssp string) string, visit func(probability float64, e *Explanation)) {
	probability := 1.0
	for passed := 0; probability > 0; passed++ {
		e, holdback := p.replay(q, passed, hostOf), 0.0
		if e.Route != nil {
			holdback = e.Route.Match.Holdback
		}
		visit(probability*(1-holdback), e)
		probability *= holdback
	}
}

// replay explains q, if so many matching routes with a holdback are passed over.
func (p *Proxy) replay(q *sample.Request, passed int, hostOf func(ssp string) string) *Explanation {
	e := explanations.Get().(*Explanation)
	e.replayed = true
	r := p.acquireRequest(http1.Client{Peer: q.Client, Gone: func() bool { return false }})
	defer p.releaseRequest(r)
	r.search.Explaining, r.search.HeldBack = true, passed
	f := p.readSampled(r, q)
	if f == nil && !q.HasBody && r.dependsOnBody() {
		e.Undecided = true
		return e
	}
	if f == nil {
		f = p.prepare(r)
	}
	if q.ID != "" && r.opts.RequestIDField != "" {
		r.fields.KeepRequestID(q.ID)
	}
	e.complete(r, f, hostOf)
	return e
}

// dependsOnBody reports whether the body decides where r goes, how much time r has, or what SSPs get beside a copy of the
// body.
func (r *request) dependsOnBody() bool {
	return r.search.NeedsBody || r.route.Filters() || r.route.EditsBodies() || r.route.RewritesTmax() || r.route.TruncateIP ||
		r.route.MergeOpenRTB || r.opts.Deadline.OpenRTBTmax
}

// readSampled reads q as if a client sent it, and finds its route.
func (p *Proxy) readSampled(r *request, q *sample.Request) *refusal {
	r.fields.HTTP10, r.fields.HTTP2 = q.HTTP10, q.HTTP2
	if err := r.fields.Scan(q.Fields); err != nil {
		return http1.MalformedFields(err)
	}
	if f := r.checkLine([]byte(q.Method), q.Target); f != nil {
		return f
	}
	if f := r.findRouteOrHealth(); f != nil {
		return f
	}
	switch {
	case q.BodyBytes > 0 && r.ssp.Method != exchange.POST:
		return bodyNotAllowed()
	case q.BodyBytes > r.opts.MaxBodyBytes:
		return r.bodyTooLarge()
	case len(q.Body) == 0:
		return nil
	}
	return p.addBody(r, q.Body)
}
