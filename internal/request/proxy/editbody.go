package proxy

import (
	"errors"
	"fmt"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// editBody shortens the addresses in the body if the route's privacy requires that, and checks whether the body can be
// edited as the SSPs' remove and set require. For both, and for the SSPs' rewrite_tmax, it decodes a body in gzip
// or zstd. An empty body needs no edit.
func (p *Proxy) editBody(r *request) *refusal {
	rt := r.route
	mustRead := rt.TruncateIP || rt.EditsBodies()
	if len(r.body) == 0 || !mustRead && !rt.RewritesTmax() {
		return nil
	}
	var undecoded error
	if r.fields.Codings() == 1 && openrtb.CanDecode(r.fields.ContentEncoding()) {
		var f *refusal
		if f, undecoded = p.decodeBody(r); f != nil && (mustRead || f.Outcome != exchange.TooLarge) {
			return f
		}
		r.ssp.Consent = nil // conditions could not read the body; edits can, if it has been decoded
	}
	if !mustRead {
		return nil
	}
	facts := openrtb.AcquireFacts()
	defer facts.Release()
	facts.Consent = r.ssp.Consent
	why := route.UnreadableHeader(&r.fields)
	if why == openrtb.Readable && rt.TruncateIP {
		shortened, changed := openrtb.ShortenAddresses.Apply(r.body[:0], r.body, facts) // in place
		why = facts.Reason
		if changed {
			r.body = shortened
		}
	}
	cannotShorten := rt.TruncateIP && why != openrtb.Readable
	if why == openrtb.Readable && rt.EditsBodies() { // the body that the SSPs' edits get, since its conditions may see addresses
		r.ssp.Misfits = rt.ScanEdits(r.body, facts)
		why = facts.Reason
	}
	r.ssp.Unreadable, r.ssp.Consent = why, facts.Consent
	if len(r.ssp.Misfits) > 0 {
		p.countUnreadable(r, openrtb.WrongType)
	}
	if examined := r.search.Facts(); examined == nil || examined.Reason == openrtb.Readable {
		p.countUnreadable(r, why)
	}
	if cannotShorten {
		detail := "privacy: truncate_ip cannot read the body: " + why.Text()
		if undecoded != nil {
			detail += ", and " + undecoded.Error()
		}
		return &refusal{Outcome: exchange.BadRequest, Detail: detail}
	}
	return nil
}

// decodeBody replaces a compressed body by the decoded body. If openrtb.Decoder cannot decode it, the body and its
// Content-Encoding stay unchanged, and err says why.
func (p *Proxy) decodeBody(r *request) (f *refusal, err error) {
	limit := r.opts.MaxBodyBytes
	d := r.decoder()
	defer d.Release()
	decoded, err := d.Decode(r.fields.ContentEncoding(), r.body, limit)
	if f := r.undecoded(err); f != nil {
		return f, nil
	}
	switch {
	case len(decoded) > limit:
		return &refusal{Outcome: exchange.TooLarge, Detail: fmt.Sprintf("the decoded body is over %d bytes; see server.max_body_bytes", limit)}, nil
	case err != nil || len(decoded) == 0:
		return nil, err
	case !p.budget.Reserve(int64(len(decoded))):
		return bufferFull(p.budget), nil
	}
	buffer := bodyBuffer(len(decoded))
	p.freeBody(r)
	r.buffer, r.room = buffer, len(decoded)
	r.body = append((*buffer)[:0], decoded...)
	r.fields.DropContentEncoding()
	return nil, nil
}

// decoder returns a decoder for r's body. The decoder waits for its turns only as long as deadline.min_budget of the
// request's time will be left. The body's own tmax is not known yet, so this time follows from the head.
func (r *request) decoder() *openrtb.Decoder {
	o := &r.opts.Deadline
	budget, stated, _ := r.headBudget() // budget is 0 if setDeadline will refuse the request
	if !stated {
		budget = min(budget, o.Default)
	}
	d := openrtb.AcquireDecoder()
	d.Resources = openrtb.Resources{
		Budget: r.ssp.Budget, CPU: r.ssp.CPU, Party: cpushare.PartyOf(r.identity.Client()),
		Deadline: r.started.Add(budget - o.Reserve - o.MinBudget - r.Waited),
	}
	return d
}

// undecoded refuses a request whose body could not be decoded because adbuffer lacks a resource. It returns nil for
// every other error of openrtb.Decoder, since the body itself is the cause.
func (r *request) undecoded(err error) *refusal {
	switch {
	case errors.Is(err, openrtb.ErrNoTurn):
		return &refusal{Outcome: exchange.Overloaded, RetryAfter: overload.RetryAfter, Detail: err.Error()}
	case errors.Is(err, openrtb.ErrNoMemory):
		return bufferFull(r.ssp.Budget)
	}
	return nil
}
