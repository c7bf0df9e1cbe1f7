package proxy

import (
	"fmt"

	"adbuffer/internal/openrtb"
	"adbuffer/internal/route"
	"adbuffer/internal/upstream"
)

// editBody shortens the addresses in the body if the route's privacy requires that, and checks whether SSPs' remove
// can read it. It decodes a gzip body for both. An empty body has nothing to hide.
func (p *Proxy) editBody(r *request) *refusal {
	rt := r.route
	if len(r.body) == 0 || !rt.TruncateIP && !rt.Removes() {
		return nil
	}
	var undecoded error
	if r.fields.Codings() == 1 && openrtb.IsGzip(r.fields.ContentEncoding()) {
		var f *refusal
		if f, undecoded = p.decodeBody(r); f != nil {
			return f
		}
	}
	facts := openrtb.AcquireFacts()
	defer facts.Release()
	why := route.UnreadableHeader(&r.fields)
	if why == openrtb.Readable && rt.Removes() {
		rt.ScanRemoved(r.body, facts)
		why = facts.Reason
	}
	r.ssp.Unreadable = why
	if why == openrtb.Readable && rt.TruncateIP {
		shortened, changed := openrtb.ShortenAddresses.Apply(r.body[:0], r.body, facts) // in place
		why = facts.Reason
		if changed {
			r.body = shortened
		}
	}
	if why == openrtb.Readable {
		return nil
	}
	if examined := r.search.Facts(); examined == nil || examined.Reason == openrtb.Readable {
		p.unreadable[why].Add(1)
	}
	if rt.TruncateIP {
		detail := "privacy: truncate_ip cannot read the body: " + why.Text()
		if undecoded != nil {
			detail += ", and " + undecoded.Error()
		}
		return &refusal{Outcome: upstream.BadRequest, Detail: detail}
	}
	return nil
}

// decodeBody replaces a gzip body by what it holds. A body that openrtb.Gunzipper does not decode stays, and keeps
// its Content-Encoding; err says why.
func (p *Proxy) decodeBody(r *request) (f *refusal, err error) {
	limit := r.opts.MaxBodyBytes
	if !p.budget.Reserve(int64(limit)) { // until the length is known
		return p.bufferFull(), nil
	}
	reserved := limit
	defer func() { p.budget.Release(int64(reserved)) }()
	g := openrtb.AcquireGunzipper()
	defer g.Release()
	decoded, err := g.Decode(r.body, limit)
	switch {
	case len(decoded) > limit:
		return &refusal{Outcome: upstream.TooLarge, Detail: fmt.Sprintf("the decoded body is over %d bytes; see server.max_body_bytes", limit)}, nil
	case err != nil || len(decoded) == 0:
		return nil, err
	}
	buffer := bodyBuffer(len(decoded))
	p.freeBody(r)
	reserved -= len(decoded)
	r.buffer, r.room = buffer, len(decoded)
	r.body = append((*buffer)[:0], decoded...)
	r.fields.DropContentEncoding()
	return nil, nil
}
