package proxy

import (
	"slices"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/sample"
)

// Sample returns the sample of admin.sample, or nil.
func (p *Proxy) Sample() *sample.Sample { return p.current().sample }

// sampled returns a copy of r for the sample, without secrets and with shortened addresses of the client and its device.
func (r *request) sampled(e *end) *sample.Request {
	q := &sample.Request{
		ID: string(r.requestID()), Method: string(r.method), HTTP2: r.fields.HTTP2, HTTP10: r.fields.HTTP10,
		Client: header.Shorten(r.clientAddr()), BodyBytes: max(len(r.body), int(r.fields.ContentLength())),
		Route: r.stats(r.route).name,
	}
	mem := make([]byte, 0, len(r.rawTarget)+r.fields.Size()+len("\r\n"))
	mem = header.AppendMaskedTarget(mem, r.rawTarget)
	n := len(mem)
	mem = r.fields.AppendMasked(mem)
	q.Target, q.Fields = mem[:n:n], mem[n:]
	// A request whose time has begun has been read to its end, and only a POST has a body.
	if (!r.started.IsZero() || r.ssp.Method != exchange.POST) && len(r.body) <= r.sample.MaxBody() {
		q.BodyBytes = len(r.body)
		q.Body, q.HasBody = shortened(r)
	}
	q.Asked = asked(e)
	return q
}

// shortened returns a copy of r's body, in which the addresses of the device are shortened. It returns false if the body
// is unreadable, so that addresses in it cannot be found, or came with a coding: conditions do not read such a body, also if
// it has been decoded for edits.
func shortened(r *request) ([]byte, bool) {
	if len(r.body) == 0 {
		return nil, true
	}
	if r.fields.Codings() > 0 {
		return nil, false
	}
	facts := openrtb.AcquireFacts()
	defer facts.Release()
	body, changed := openrtb.ShortenAddresses.Apply(make([]byte, 0, len(r.body)), r.body, facts)
	switch {
	case facts.Reason != openrtb.Readable:
		return nil, false
	case changed:
		return body, true
	}
	return slices.Clone(r.body), true
}

// asked returns the SSPs that got the request, or were to get it.
func asked(e *end) []sample.Asked {
	if e.legs == nil && e.ssp != nil {
		var x exchange.Summary
		if e.exchange != nil {
			x = e.exchange.Summary()
		}
		return []sample.Asked{askedOf(e.ssp.Name(), e.outcome, &x)}
	}
	if len(e.legs) == 0 {
		return nil
	}
	all := make([]sample.Asked, len(e.legs))
	for i := range e.legs {
		all[i] = askedOf(e.legs[i].SSP, e.legs[i].Outcome, &e.legs[i].Exchange)
	}
	return all
}

func askedOf(ssp string, o exchange.Outcome, x *exchange.Summary) sample.Asked {
	a := sample.Asked{SSP: ssp, Outcome: o}
	if !x.Times.Acquired.IsZero() {
		a.Hold = max(0, x.Times.Done.Sub(x.Times.Acquired))
	}
	return a
}
