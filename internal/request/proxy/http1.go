package proxy

import (
	"context"
	"net/netip"
	"sync"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/wire/exchange"
)

// handler is a Proxy as clients' connections see it. It implements http1.Handler.
type handler struct{ *Proxy }

// http1Request is a request over HTTP/1 and its response. It implements http1.Request and
// source. The objects are reused.
type http1Request struct {
	proxy    *Proxy
	conn     *http1.Conn
	request  *request // invalid once the response is complete
	response response
	unread   slowClient // used while the client does not read the response
}

var http1Requests = sync.Pool{New: func() any { return &http1Request{response: response{Response: http1.Response{Length: -1}}} }}

func (p *Proxy) newHTTP1Request(c *http1.Conn) *http1Request {
	x := http1Requests.Get().(*http1Request)
	x.proxy, x.conn, x.request = p, c, p.acquireRequest(c.Client)
	return x
}

// Handle implements http1.Handler.
func (p handler) Handle(c *http1.Conn) (http1.Request, *http1.Response) {
	x := p.newHTTP1Request(c)
	x.handle()
	return x, &x.response.Response
}

func (x *http1Request) handle() {
	p, r, w := x.proxy, x.request, &x.response
	defer func() {
		panicked := recover()
		w.Close = w.Close || !r.fields.Persistent()
		p.done(w, r, panicked)
	}()
	if !p.admit(w, r, x.checkHead()) {
		return
	}
	if f := p.readBody(r); f != nil {
		p.refuse(w, r, f)
		return
	}
	p.forward(w, r)
}

// checkHead checks the message head, and first of all that it is well-formed: after a malformed head, it is
// unknown where the next request starts.
func (x *http1Request) checkHead() *refusal {
	r := x.request
	method, target, f := x.conn.Head(&r.fields)
	x.response.head = string(method) == "HEAD"
	if f != nil {
		return f
	}
	r.source = x.conn.Body(x, &r.fields, r.opts.MaxBodyBytes)
	f = r.checkLine(method, target)
	if f == nil && r.source != nil && r.ssp.Method != exchange.POST {
		f = bodyNotAllowed()
	}
	return f
}

func (x *http1Request) Await() { x.proxy.uploads.register(&x.request.upload, x, nil, 0) }

func (x *http1Request) Unread() {
	x.proxy.unread.register(&x.unread, x, x.response.sending, x.response.held())
}

func (x *http1Request) stopUpload() { x.conn.Stop() }

// dropUnread makes the blocked Write fail, after which the connection is closed.
func (x *http1Request) dropUnread() { x.conn.HangUp() }

func (x *http1Request) Release() {
	x.proxy.unread.unregister(&x.unread, false)
	x.response.recycle()
	x.proxy, x.conn, x.request = nil, nil, nil
	http1Requests.Put(x)
}

// Refused implements http1.Handler.
func (p handler) Refused(peer netip.Addr, f *refusal) *http1.Response {
	v := p.current()
	if f.Reset {
		p.endedUnread(v, peer, nil, f)
		return nil
	}
	w, id := new(response), v.newRequestID()
	p.endedUnread(v, peer, id, f)
	v.writeOwn(w, f.Outcome, f.StatusCode(), id, "", f.Detail)
	v.setRequestID(w, id)
	return &w.Response
}

// Drain waits until each request in progress has its response, or ctx ends, and then closes all
// connections. It returns how many requests it cut. The caller has closed its own listeners; Drain
// closes the listeners that Serve still uses.
//
// A client that has just connected has a second to send a request, after which Drain closes idle
// connections. A client over HTTP/1.1 learns of the close only from a response that was sent after
// BeginDrain. A request that has arrived before its connection is closed gets its response.
func (p *Proxy) Drain(ctx context.Context) (cut int) {
	if !p.Server.Drain(ctx, func() bool { return p.streams.Load() == 0 }) {
		cut = p.InProgress()
		p.Cut()
	}
	return cut
}

// InFlight returns how many requests and fan-out legs are in flight.
func (p *Proxy) InFlight() int { return p.inFlight.Now() }

// InProgress returns how many requests and fan-out legs are in flight, plus how many requests have a body
// that is still arriving. While a request changes from one to the other, it may count twice.
func (p *Proxy) InProgress() int {
	uploads, _, _ := p.uploads.counts() // first, so that an upload that becomes a request in flight is not missed
	return uploads + p.inFlight.Now()
}
