package proxy

import (
	"errors"
	"time"

	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
)

// findRoute finds the route, and the SSP that the client chose. It needs only the message head, so that a
// request can be refused before its body is read. If conditions on the body must decide, it sets
// r.search.NeedsBody, and examine calls it again.
func (r *request) findRoute() *refusal {
	var fromPath []byte
	r.route, fromPath = r.table.Find(&r.fields, &r.search)
	if r.search.NeedsBody {
		return nil
	}
	if r.route == nil {
		return &refusal{Outcome: exchange.NoRoute, Detail: "no route matches; see routes[].match"}
	}
	if f := r.checkLoop(); f != nil {
		return f
	}
	target, query, err := r.route.Choose(&r.fields, fromPath, &r.query)
	switch {
	case errors.Is(err, route.ErrUnknownSSP):
		return &refusal{Outcome: exchange.UnknownSSP, Detail: err.Error()}
	case err != nil:
		return &refusal{Outcome: exchange.BadRequest, Detail: err.Error()}
	}
	r.target = target
	if allow, ok := r.route.Allow(r.ssp.Method, target); !ok {
		return &refusal{Outcome: exchange.MethodNotAllowed, Allow: allow, Detail: "the route sends each request to several SSPs at once, and serves " + allow + "; see routes[].mode"}
	}
	r.ssp.Query = query
	return nil
}

// prepare does what all legs of a request share, once its body has been read: it finds a route that depends
// on the body, resolves the client's identity, edits the body and sets the deadline.
func (p *Proxy) prepare(r *request) *refusal {
	r.started = time.Now() // the whole request has been read: its time starts now
	if f := p.examine(r); f != nil {
		return f
	}
	trusted := r.peerTrusted()
	if r.opts.RequestIDField != "" {
		r.fields.SetRequestID(trusted, r.started)
	}
	r.identity.Resolve(&r.fields, r.Peer, trusted, r.opts.TrustedProxies, r.route.TruncateIP)
	r.ssp.Fields, r.ssp.Identity, r.ssp.Received = &r.fields, &r.identity, r.started
	r.ssp.Budget, r.ssp.CPU = p.budget, r.opts.CPU
	if facts := r.search.Facts(); facts != nil {
		r.ssp.Consent = facts.Consent
	}
	if f := p.editBody(r); f != nil {
		return f
	}
	r.ssp.Body, r.ssp.Held = r.body, int64(r.room)
	r.ssp.Gone, r.ssp.Context, r.ssp.Facts = r.Gone, r.Cancel, r.search.Facts()
	r.ssp.Fairness = r.opts.Fairness
	if r.route.MergeOpenRTB && r.target == nil {
		if why := route.CheckMerge(&r.ssp); why != "" {
			return &refusal{Outcome: exchange.BadRequest, Detail: why}
		}
	}
	return r.setDeadline()
}

// examine examines the body if conditions depend on it, and then finds the route if the message head alone
// did not determine it.
func (p *Proxy) examine(r *request) *refusal {
	if !r.search.NeedsBody && !r.route.Filters() {
		return nil
	}
	r.table.Examine(&r.fields, r.body, &r.search)
	var f *refusal
	if r.route == nil {
		f = r.findRoute()
		if f == nil {
			r.Waited, f = r.shed()
		}
	}
	p.countUnreadable(r, r.search.Unreadable(r.route))
	return f
}

// countUnreadable counts a body that cannot be used for conditions or edits. Explanations count nothing.
func (p *Proxy) countUnreadable(r *request, why openrtb.Reason) {
	if why != openrtb.Readable && !r.search.Explaining {
		p.unreadable[why].Add(1)
	}
}

// peerTrusted reports whether the peer's identity fields and request id are trusted. A peer on a unix socket
// is always trusted.
func (r *request) peerTrusted() bool {
	return !r.Peer.IsValid() || header.Trusted(r.Peer, r.opts.TrustedProxies)
}

// maxSkipped bounds how many bytes of a refused request's body are read and discarded, so that the
// connection can be reused.
const maxSkipped = 256 << 10

// skipBody discards the rest of the body. If the body is longer than maxSkipped, the connection is closed.
func (r *request) skipBody() {
	if r.source != nil {
		r.source.Discard(maxSkipped)
	}
}
