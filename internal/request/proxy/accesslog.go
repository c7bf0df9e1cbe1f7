package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
)

// end says how a request ended.
type end struct {
	outcome exchange.Outcome
	detail  string // text of the error, if there is one
	at      time.Time
	took    time.Duration
	// The following fields are zero if the request was not forwarded.
	ssp      *ssp.SSP        // nil also if several SSPs responded
	err      *exchange.Error // why no SSP responded
	exchange *exchange.Exchange
	legs     []logs.Leg
}

// ended counts and reports a request that has its response, w.
func (p *Proxy) ended(w *response, r *request, e *end) {
	rs := r.stats(r.route)
	rs.outcomes[e.outcome].Add(1)
	if e.outcome == exchange.NoRoute {
		p.unrouted.add(r.path(), e.at)
	}
	r.ssp.Trace.Observe(rs.duration, e.took, e.at)
	p.report(w, r, e)
	r.endTrace(w, e)
	if s := r.sample; s != nil && r.method != nil { // the method is nil if the head could not be read
		if m := s.Draw(e.at); m != nil {
			s.Keep(m, r.sampled(e))
		}
	}
}

// failed says whether the request failed, only a leg of it, or neither.
func (e *end) failed() logs.Failed {
	switch {
	case e.outcome.IsFailure(), e.ssp != nil && e.ssp.Failed(e.outcome, e.exchange):
		return logs.RequestFailed
	case slices.ContainsFunc(e.legs, func(l logs.Leg) bool { return l.Failed }):
		return logs.LegFailed
	}
	return logs.NotFailed
}

// report adds a request, whose response is w, to the request log.
func (p *Proxy) report(w *response, r *request, e *end) {
	wants := p.requests.Wants(&r.opts.Access, e.failed(), e.took, e.at)
	if wants.None() {
		return
	}
	rec := &logs.Record{
		At: e.at, ID: string(r.requestID()), Method: logs.Visible(r.method), Path: logs.Visible(r.path()),
		Route: r.stats(r.route).name, Client: r.client(), Outcome: e.outcome, BytesIn: len(r.body), Total: e.took, Error: logs.Cut(e.detail),
		Unreadable: r.unreadable().String(),
	}
	if !r.ssp.Deadline.IsZero() {
		rec.Deadline, rec.DeadlineFrom, rec.IgnoredTmax = r.ssp.Deadline.Sub(r.started), r.ssp.DeadlineFrom, r.ignoredTmax.String()
	}
	rec.Source = string(w.source)
	if !w.head {
		rec.BytesOut = len(w.Body)
	}
	if e.outcome != exchange.ClientGone && rec.Source != "" { // otherwise the client got no response
		rec.Status = w.Status
	}
	if e.outcome == exchange.Unreadable {
		rec.Error = unreadableDetail(&e.exchange.Response)
	}
	if e.outcome == exchange.ClientError && e.exchange != nil && e.exchange.RefusedForSize() {
		q := &e.exchange.Request
		rec.Error = fmt.Sprintf("the SSP refuses the size of the request, whose target and fields have %d bytes and whose body has %d", q.HeadBytes(), len(q.Body))
	}
	rec.SSP, rec.Legs = nameOf(e.ssp), slices.Clone(e.legs)
	if e.exchange != nil && e.outcome != exchange.Merged {
		rec.Exchange = e.exchange.Summary()
	}
	p.requests.Write(rec, wants)
}

// unreadable says why conditions, or else edits, could not use the body.
func (r *request) unreadable() openrtb.Reason {
	why := cmp.Or(r.search.Unreadable(r.route), r.ssp.Unreadable)
	if why == openrtb.Readable && len(r.ssp.Misfits) > 0 {
		why = openrtb.WrongType
	}
	return why
}

// unreadableDetail says what an SSP sent in place of an ad or a no-bid.
func unreadableDetail(res *exchange.Response) string {
	const shown = 40
	kind, _ := syntax.FindField(res.Fields, "Content-Type")
	if kind == nil {
		kind = []byte("no Content-Type")
	}
	return logs.Cut(fmt.Sprintf("the body (%s, %d bytes) begins with %s", logs.Visible(kind), len(res.Body), logs.Visible(res.Body[:min(len(res.Body), shown)])))
}

// endedUnread counts and reports a request or a connection that could not be read.
func (p *Proxy) endedUnread(v *configVersion, peer netip.Addr, id []byte, f *refusal) {
	rs, now := v.stats(nil), time.Now()
	rs.outcomes[f.Outcome].Add(1)
	rs.duration.ObserveDuration(0)
	failed := logs.NotFailed
	if f.Outcome.IsFailure() {
		failed = logs.RequestFailed
	}
	w := p.requests.Wants(&v.opts.Access, failed, 0, now)
	if w.None() {
		return
	}
	rec := &logs.Record{At: now, ID: string(id), Route: noRoute, Client: v.shownPeer(peer), Outcome: f.Outcome, Error: logs.Cut(f.Detail)}
	if !f.Reset {
		rec.Status, rec.Source = f.StatusCode(), "proxy/"+f.Outcome.String()
	}
	p.requests.Write(rec, w)
}

// path returns the path of the request target, unchanged.
func (r *request) path() []byte {
	if r.fields.Path != nil {
		return r.fields.Path
	}
	path, _, _ := bytes.Cut(r.rawTarget, []byte{'?'})
	return path
}

// client returns the address of the client as logs may show it, or "" for a unix socket. It resolves the
// identity itself if the request was refused before prepare could.
func (r *request) client() string {
	if r.method == nil { // the head could not be read, so fields is undefined
		return r.shownPeer(r.Peer)
	}
	return addressText(r.clientAddr())
}

// clientAddr is client for a request whose head could be read.
func (r *request) clientAddr() netip.Addr {
	if r.ssp.Identity == nil {
		truncate := r.truncatesAny()
		if r.route != nil {
			truncate = r.route.TruncateIP
		}
		r.identity.Resolve(&r.fields, r.Peer, r.peerTrusted(), r.opts.TrustedProxies, truncate)
	}
	return r.identity.Client()
}

// shownPeer returns the address of a peer whose request head could not be read, as logs may show it. The
// route is unknown, so the address is shortened if the privacy of any route requires that.
func (v *configVersion) shownPeer(peer netip.Addr) string {
	if v.truncatesAny() {
		peer = header.Shorten(peer)
	}
	return addressText(peer)
}

// truncatesAny reports whether any route shortens the addresses of clients.
func (v *configVersion) truncatesAny() bool {
	return slices.ContainsFunc(v.table.Routes, func(rt *route.Route) bool { return rt.TruncateIP })
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
