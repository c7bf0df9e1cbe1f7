package proxy

import (
	"encoding/json"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// sourceField says where the response is from: "ssp/<name>" or "proxy/<reason>".
const sourceField = "X-Adbuffer-Source"

// writeResponse writes the result of the route's mode.
func (p *Proxy) writeResponse(ctx *fasthttp.RequestCtx, r *request, res *route.Result) {
	defer res.Release()
	now := time.Now()
	e := end{outcome: res.Outcome, at: now, took: now.Sub(r.started)}
	if res.Err != nil {
		e.detail = detailOf(res.Err)
	}
	ex := res.Exchange
	p.writeResult(ctx, r, res)
	p.finish(ctx, r, &e, res, ex)
}

// finish adds the fields about the request to its response, and counts and reports the request. res
// and ex are as in report.
func (p *Proxy) finish(ctx *fasthttp.RequestCtx, r *request, e *end, res *route.Result, ex *upstream.Exchange) {
	if r.opts.ProxyStatus {
		r.addProxyStatus(ctx, e, res, ex)
	}
	if r.opts.ServerTiming {
		r.addServerTiming(ctx, ex, e.took)
	}
	p.ended(ctx, r, e, res, ex)
}

// writeResult writes the response, and keeps its exchange until it is sent.
func (p *Proxy) writeResult(ctx *fasthttp.RequestCtx, r *request, res *route.Result) {
	if err := res.Err; err != nil {
		if r.writeError(ctx, err.Outcome, err.Outcome.Row().Status, nameOf(res.SSP), detailOf(err)) {
			setRetryAfter(ctx, err.RetryAfter)
		}
		return
	}
	if r.route.NoAdOnError && res.Status() >= fasthttp.StatusBadRequest {
		r.writeNoAd(ctx, string(res.SSP.SourceBytes()))
		return
	}
	if res.Outcome == upstream.NoBid {
		r.noAd(bySSP)
	}
	a := &res.Exchange.Response
	h := &ctx.Response.Header
	if res.Outcome == upstream.Merged {
		h.SetContentType("application/json")
		h.Set(sourceField, "proxy/"+upstream.Merged.String())
		httpheader.AddDate(h)
	} else {
		res.SSP.Policy().CopyResponse(h, a.Status, a.Fields)
		h.SetCanonical([]byte(sourceField), res.SSP.SourceBytes())
	}
	if len(a.Body) > 0 {
		ctx.Response.SetBodyRaw(a.Body) // not copied: the connection keeps it until it is sent
	}
	if a.ContentLength >= 0 && (ctx.IsHead() || a.Status == fasthttp.StatusNotModified) {
		h.SetContentLength(a.ContentLength)
	}
	if r.stream != nil {
		if res.Outcome != upstream.Merged {
			r.stream.trailers = res.SSP.Policy().AppendTrailers(r.stream.trailers[:0], a.Trailers)
		}
		r.stream.sending = res.Exchange
	} else {
		r.conn.sending = res.Exchange
	}
	res.Exchange = nil
}

// writeError writes adbuffer's own response for a request that no SSP responded to. It returns false
// if the route's response for no ad replaces that.
func (r *request) writeError(ctx *fasthttp.RequestCtx, o upstream.Outcome, status int, sspName, detail string) (isOwn bool) {
	if r.route != nil && r.route.NoAdOnError && status >= fasthttp.StatusInternalServerError {
		r.writeNoAd(ctx, "proxy/"+o.String())
		return false
	}
	r.writeOwn(ctx, o, status, r.requestID(), sspName, detail)
	return true
}

// nameOf returns the name of an SSP, "" for nil.
func nameOf(s *ssp.SSP) string {
	if s == nil {
		return ""
	}
	return s.Name()
}

// detailOf is the text of an error, with its cause.
func detailOf(e *upstream.Error) string {
	switch {
	case e.Err == nil:
		return e.Detail
	case e.Detail == "":
		return e.Err.Error()
	default:
		return e.Detail + ": " + e.Err.Error()
	}
}

// refuse sends the response of a request that is not forwarded.
func (p *Proxy) refuse(ctx *fasthttp.RequestCtx, r *request, f *refusal) {
	e := end{outcome: f.outcome, detail: f.detail, at: time.Now()}
	if !r.started.IsZero() {
		e.took = e.at.Sub(r.started)
	}
	r.beginTrace(e.at)
	if f.close && r.stream == nil {
		ctx.SetConnectionClose()
	} else {
		p.skipBody(r)
	}
	if f.allow != "" {
		ctx.Response.Header.Set("Allow", f.allow)
	}
	r.writeError(ctx, f.outcome, f.statusCode(), "", f.detail)
	p.finish(ctx, r, &e, nil, nil)
}

// ownBody is the JSON of adbuffer's own error responses.
type ownBody struct {
	Error  string `json:"error"`
	SSP    string `json:"ssp,omitempty"`
	Detail string `json:"detail,omitempty"`
	ID     string `json:"id,omitempty"` // of the request
}

func (g *configVersion) writeOwn(ctx *fasthttp.RequestCtx, o upstream.Outcome, status int, id []byte, sspName, detail string) {
	body := ownBody{Error: o.String(), ID: string(id)}
	if g.opts.ErrorDetail {
		if detail != "" {
			detail += "; "
		}
		body.SSP, body.Detail = sspName, detail+"see the runbook, entry "+o.String() // of deploy/prometheus/RUNBOOK.md
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic("BUG: strings make no JSON: " + err.Error())
	}
	ctx.Response.ResetBody()
	ctx.Response.SetStatusCode(status)
	ctx.Response.Header.SetContentType("application/json")
	ctx.Response.Header.Set(sourceField, "proxy/"+o.String())
	httpheader.AddDate(&ctx.Response.Header)
	ctx.Response.SetBody(append(text, '\n'))
}

// writeNoAd writes the route's response for no ad, in place of a response from source.
func (r *request) writeNoAd(ctx *fasthttp.RequestCtx, source string) {
	r.noAd(byProxy)
	ctx.Response.ResetBody()
	httpheader.AddDate(&ctx.Response.Header)
	ctx.Response.Header.Set(sourceField, source)
	if r.route.NoAd == route.NoAdVAST {
		ctx.Response.SetStatusCode(fasthttp.StatusOK)
		ctx.Response.Header.SetContentType("application/xml; charset=utf-8")
		ctx.Response.SetBodyString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + `<VAST version="` + r.route.VASTVersion + `"/>` + "\n")
		return
	}
	ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
}

// writeHealth is readiness on the traffic port.
func (p *Proxy) writeHealth(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.SetContentType("text/plain; charset=utf-8")
	httpheader.AddDate(&ctx.Response.Header)
	if p.draining.Load() || !p.ready() {
		ctx.Response.SetStatusCode(fasthttp.StatusServiceUnavailable)
		ctx.Response.SetBodyString("not ready\n")
		return
	}
	ctx.Response.SetBodyString("ready\n")
}

// panicked logs legs that panicked after their request had ended.
func (p *Proxy) panicked(v any, stack []byte) {
	p.panics.Add(1)
	p.log.Error("a leg of a request panicked", zap.Any("panic", v), zap.ByteString("stack", stack))
}

const panicDetail = "adbuffer failed; see its log"

// done ends the handling of a request, also of one that panicked.
func (p *Proxy) done(ctx *fasthttp.RequestCtx, r *request, panicked any) {
	p.uploads.end(&r.upload, true)                                                                // before endRequest: after it, no other upload stops the connection
	if r.stream == nil && (!r.conn.endRequest() || !r.fields.Persistent()) || p.draining.Load() { // checked last, for requests that were in flight when the drain began
		ctx.SetConnectionClose()
	}
	if panicked != nil {
		p.panics.Add(1)
		p.log.Error("a request made the handler panic", zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
		e := end{outcome: upstream.Internal, detail: panicDetail, at: time.Now()}
		ctx.Response.Reset()
		ctx.SetConnectionClose()
		r.writeOwn(ctx, upstream.Internal, upstream.Internal.Row().Status, r.requestID(), "", panicDetail)
		p.ended(ctx, r, &e, nil, nil)
		r.setRequestID(ctx, r.requestID())
		// The request's buffers may still be in use elsewhere: the garbage collector frees them.
		p.budget.Release(int64(r.room))
		return
	}
	r.setRequestID(ctx, r.requestID())
	p.release(r)
}
