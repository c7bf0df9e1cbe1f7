package proxy

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/route"
	"adbuffer/internal/upstream"
)

// prepare finds the route, reads the body, and fixes the deadline: all that is
// to be done once, whatever the number of legs.
func (p *Proxy) prepare(r *request) *fault {
	var fromPath []byte
	if r.route, fromPath = r.table.Find(&r.lookup); r.route == nil {
		return &fault{outcome: upstream.NoRoute, detail: "no route matches; see routes[].match"}
	}
	if f := r.checkLoop(); f != nil {
		return f
	}
	target, query, err := r.route.Choose(&r.lookup, fromPath, &r.query)
	switch {
	case errors.Is(err, route.ErrUnknownSSP):
		return &fault{outcome: upstream.UnknownSSP, detail: err.Error()}
	case err != nil:
		return &fault{outcome: upstream.BadRequest, detail: err.Error()}
	}
	r.target = target
	if allow, ok := r.route.Allow(r.ssp.Method, target); !ok {
		return &fault{outcome: upstream.MethodNotAllowed, allow: allow, detail: "the route asks several SSPs at once, and serves " + allow}
	}
	if f := p.readBody(r); f != nil {
		return f
	}
	r.started = time.Now() // the request is read whole: its clock starts
	if f := r.setDeadline(); f != nil {
		return f
	}
	trusted := !r.conn.peer.IsValid() || httpheader.Trusted(r.conn.peer, r.opts.TrustedProxies)
	r.identity.Resolve(&r.fields, r.conn.peer, trusted, r.opts.TrustedProxies, r.route.TruncateIP)
	r.ssp.Query, r.ssp.Fields, r.ssp.Identity, r.ssp.Body = query, &r.fields, &r.identity, r.body
	r.ssp.Received, r.ssp.Budget = r.started, p.budget
	r.ssp.Gone = r.gone()
	return nil
}

// gone returns what tells whether the client still waits for the answer.
func (r *request) gone() func() bool {
	if r.stream != nil {
		return r.stream.goneFunc
	}
	return r.conn.goneFunc
}

// readBody reads the whole body into r.body, under the limit and the budget.
func (p *Proxy) readBody(r *request) *fault {
	r.body = r.body[:0]
	n := r.fields.ContentLength()
	if n == 0 || n < 0 && !r.fields.Chunked() && !r.toTheEnd {
		return nil
	}
	if n > int64(r.opts.MaxBodyBytes) {
		return r.bodyTooLarge()
	}
	if r.source == nil {
		return &fault{outcome: upstream.Internal, detail: "the body cannot be read"}
	}
	room := int(n) // how much of r.body is reserved
	if n < 0 {
		room = firstRoom
	}
	for {
		if f := p.reserveBody(r, room); f != nil {
			return f
		}
		m, err := r.source.Read(r.body[len(r.body):room])
		r.body = r.body[:len(r.body)+m]
		switch {
		case len(r.body) > r.opts.MaxBodyBytes:
			return r.bodyTooLarge()
		case n >= 0 && int64(len(r.body)) == n:
			return nil
		case err == nil:
		case errors.Is(err, io.EOF) && n < 0:
			return nil
		case isTimeout(err):
			return &fault{outcome: upstream.BadRequest, status: fasthttp.StatusRequestTimeout, detail: fmt.Sprintf("the request was not read within %v; see server.read_timeout", r.opts.ReadTimeout), close: true}
		default:
			return &fault{outcome: upstream.BadRequest, detail: "the body is malformed, or ended early", close: true}
		}
		if len(r.body) == room {
			room = min(2*room, r.opts.MaxBodyBytes+1) // one more byte tells whether it is over
		}
	}
}

// firstRoom is what is reserved for a body whose length is not stated.
const firstRoom = 4096

// reserveBody takes n bytes in all for r.body from the budget, and makes room.
func (p *Proxy) reserveBody(r *request, n int) *fault {
	if int64(n) > r.held {
		if !p.budget.Reserve(int64(n) - r.held) {
			return p.bufferFull()
		}
		r.held = int64(n)
	}
	if cap(r.body) < n {
		r.body = append(make([]byte, 0, n), r.body...)
	}
	return nil
}

// maxSkipped is how much of a body is read past, so that the connection of a
// request that was refused can go on.
const maxSkipped = 256 << 10

var skipBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// skipBody reads past what is left of the body, and reports whether the next
// request starts there. The server would do that as well, but behind our back:
// a line of the body would pass for a request line.
func (p *Proxy) skipBody(ctx *fasthttp.RequestCtx) bool {
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return true
	}
	if ctx.Request.Header.ContentLength() > maxSkipped {
		return false
	}
	b := skipBuffers.Get().(*[4096]byte)
	defer skipBuffers.Put(b)
	for n := 0; n <= maxSkipped; {
		m, err := stream.Read(b[:])
		if n += m; err != nil {
			return errors.Is(err, io.EOF)
		}
	}
	return false
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
