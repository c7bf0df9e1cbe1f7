package proxy

import (
	"runtime/debug"
	"strconv"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// response is the response to a client, over any protocol. The objects are reused.
type response struct {
	http1.Response                    // Close has no effect over HTTP/2
	source         []byte             // the value of sourceField, or nil
	trailers       []byte             // lines; not sent over HTTP/1
	sending        *exchange.Exchange // the exchange that owns the memory of the body, or nil
	head           bool               // the request's method is HEAD: no body is sent
}

// sourceField is the field that says who made the response: "ssp/<name>" or "proxy/<reason>".
const sourceField = "X-Adbuffer-Source"

// Statuses that do not follow from an outcome.
const (
	statusOK          = 200
	statusNoContent   = 204
	statusNotModified = 304
	statusInternal    = 500
	statusUnavailable = 503
)

// maxKeptFields bounds the memory for fields that a response keeps for its next use.
const maxKeptFields = 16 << 10

// reset makes w empty, but keeps head and sending.
func (w *response) reset() {
	w.Response = http1.Response{Fields: w.Fields[:0], Length: -1}
	w.source, w.trailers = nil, w.trailers[:0]
	if cap(w.Fields)+cap(w.trailers) > maxKeptFields {
		w.Fields, w.trailers = nil, nil
	}
}

// recycle makes w ready for another request, once the client has the response.
func (w *response) recycle() {
	if w.sending != nil {
		w.sending.Release()
	}
	w.sending, w.head = nil, false
	w.reset()
}

// held estimates how many bytes of memory an unread response holds.
func (w *response) held() int { return unreadCost + len(w.Fields) + len(w.Body) + len(w.trailers) }

// unreadCost is how many bytes of memory an unread response holds besides its header and body.
const unreadCost = 4 << 10

// writeOwnHead writes status and header of a response that adbuffer makes itself. contentType is "" for a
// response without a body.
func (w *response) writeOwnHead(status int, contentType string, source []byte) {
	w.Status, w.source = status, source
	if contentType != "" {
		w.addField("Content-Type", []byte(contentType))
	}
	if source != nil {
		w.addField(sourceField, source)
	}
	w.Fields = header.AppendDate(w.Fields, time.Now())
}

func (w *response) addField(name string, value []byte) {
	w.Fields = append(append(append(append(w.Fields, name...), ": "...), value...), "\r\n"...)
}

// setRetryAfter states when another request may succeed, in whole seconds.
func setRetryAfter(w *response, wait time.Duration) {
	if wait > 0 {
		w.addField("Retry-After", strconv.AppendInt(nil, int64((wait+time.Second-1)/time.Second), 10))
	}
}

// writeResponse writes the result of the route's mode.
func (p *Proxy) writeResponse(w *response, r *request, res *route.Result) {
	defer res.Release()
	now := res.At
	if now.IsZero() {
		now = time.Now()
	}
	w.At = now
	e := end{outcome: res.Outcome, at: now, took: now.Sub(r.started), ssp: res.SSP, err: res.Err, exchange: res.Exchange, legs: res.Legs()}
	if res.Err != nil {
		e.detail = res.Err.Text()
	}
	if res.Filled {
		r.stats(r.route).merged.Add(1)
	}
	p.writeResult(w, r, res, now)
	p.finish(w, r, &e)
}

// finish adds the fields about the request to its response, and counts and reports the request.
func (p *Proxy) finish(w *response, r *request, e *end) {
	if r.opts.ProxyStatus {
		r.addProxyStatus(w, e)
	}
	p.ended(w, r, e)
}

// writeResult writes the response. w keeps the exchange, which owns the memory of the body, until the
// response is sent.
func (p *Proxy) writeResult(w *response, r *request, res *route.Result, now time.Time) {
	if err := res.Err; err != nil {
		if r.writeError(w, err.Outcome, err.Outcome.Row().Status, nameOf(res.SSP), err.Text()) {
			setRetryAfter(w, err.RetryAfter)
		}
		return
	}
	if res.NoAd {
		r.writeNoAd(w, []byte("proxy/"+res.Outcome.String()), res.NoAdFor, res.NBR)
		return
	}
	if r.route.NoAdOnError && (r.route.Masked.Has(res.Status()) || res.Outcome == exchange.Unreadable) {
		r.stats(r.route).masked.Add(1)
		r.writeNoAd(w, res.SSP.SourceBytes(), res.Outcome, res.Outcome.Row().NBR)
		return
	}
	if res.Outcome == exchange.NoBid {
		r.noAd(bySSP)
	}
	a := &res.Exchange.Response
	if res.Outcome == exchange.Merged {
		w.writeOwnHead(statusOK, "application/json", []byte("proxy/"+exchange.Merged.String()))
	} else {
		w.Status, w.source = a.Status, res.SSP.SourceBytes()
		policy := res.SSP.Policy()
		w.Fields = policy.AppendResponse(w.Fields, a.Fields, now)
		w.addField(sourceField, w.source)
		w.trailers = policy.AppendTrailers(w.trailers, a.Trailers)
	}
	w.Body, w.sending = a.Body, res.Exchange
	if w.head {
		w.Length = a.ContentLength
	}
	res.Exchange = nil
}

// writeError writes adbuffer's own response for a request to which no SSP responded, or for which no SSP was
// asked. isOwn is false if the route's no_ad response has replaced the error.
func (r *request) writeError(w *response, o exchange.Outcome, status int, sspName, detail string) (isOwn bool) {
	if o.NotAsked() || r.route != nil && r.route.NoAdOnError && status >= statusInternal {
		r.writeNoAd(w, []byte("proxy/"+o.String()), o, o.Row().NBR)
		return false
	}
	r.writeOwn(w, o, status, r.requestID(), sspName, detail)
	return true
}

// nameOf returns the name of an SSP, "" for nil.
func nameOf(s *ssp.SSP) string {
	if s == nil {
		return ""
	}
	return s.Name()
}

// refuse makes the response to a request that is not forwarded.
func (p *Proxy) refuse(w *response, r *request, f *refusal) {
	e := end{outcome: f.Outcome, detail: f.Detail, at: time.Now()}
	if !r.started.IsZero() {
		e.took = e.at.Sub(r.started)
	}
	r.beginTrace(e.at)
	if f.Close {
		w.Close = true
	} else {
		r.skipBody()
	}
	if f.Allow != "" {
		w.addField("Allow", []byte(f.Allow))
	}
	w.Pause = f.Pause
	if r.writeError(w, f.Outcome, f.StatusCode(), "", f.Detail) {
		setRetryAfter(w, f.RetryAfter)
	}
	p.finish(w, r, &e)
}

// panicked counts and logs a leg that panicked.
func (p *Proxy) panicked(v any, stack []byte) {
	p.panics.Add(1)
	p.log.Error("a leg of a request panicked", zap.Any("panic", v), zap.ByteString("stack", stack))
}

const panicDetail = "adbuffer failed; see its log"

// done ends the handling of a request. panicked is the value with which the handler panicked, or nil.
func (p *Proxy) done(w *response, r *request, panicked any) {
	p.uploads.unregister(&r.upload, true)
	if p.Draining() { // checked at the end, so that requests in flight at the start of a drain see it
		w.Close = true
	}
	if panicked != nil {
		p.panics.Add(1)
		p.log.Error("a request made the handler panic", zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
		e := end{outcome: exchange.Internal, detail: panicDetail, at: time.Now()}
		w.reset()
		w.Close = true
		r.writeOwn(w, exchange.Internal, exchange.Internal.Row().Status, r.requestID(), "", panicDetail)
		p.ended(w, r, &e)
		r.addCORS(w, r.route)
		r.setRequestID(w, r.requestID())
		// Other goroutines may still use the request's buffers, so r is not reused, but left to the garbage collector.
		p.budget.Release(int64(r.room))
		return
	}
	r.addCORS(w, r.route)
	r.setRequestID(w, r.requestID())
	p.releaseRequest(r)
}
