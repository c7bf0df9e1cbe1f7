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
	request  *request // until there is a response
	response response
	waiting  waiting // while the client has not read enough of the response
}

var http1Requests = sync.Pool{New: func() any { return &http1Request{response: response{Response: http1.Response{Length: -1}}} }}

func (p *Proxy) newHTTP1Request(c *http1.Conn) *http1Request {
	x := http1Requests.Get().(*http1Request)
	x.proxy, x.conn, x.request = p, c, p.acquire(c.Client)
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

// checkHead checks the message head. It first checks that the head is well-formed: in a malformed
// head, the start of the next request is unknown.
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

func (x *http1Request) Await() { x.proxy.uploads.begin(&x.request.upload, x, nil, 0) }

func (x *http1Request) Unread() {
	x.proxy.unread.begin(&x.waiting, x, x.response.sending, x.response.held())
}

func (x *http1Request) stopUpload() { x.conn.Stop() }

// dropUnread makes the Write that waits fail, and so the connection closes.
func (x *http1Request) dropUnread() { x.conn.HangUp() }

func (x *http1Request) Release() {
	x.proxy.unread.end(&x.waiting, false)
	x.response.release()
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

// Drain waits until each request in progress has its response, or ctx ends, and closes all
// connections. It returns how many requests it cut. The caller has closed its listeners; Drain
// closes the ones that Serve still uses.
//
// A client that has just connected has a second to send a request. Then Drain closes idle
// connections. Over HTTP/1.1, only the responses since BeginDrain have announced that. A request
// that has arrived before the close gets its response.
func (p *Proxy) Drain(ctx context.Context) (cut int) {
	if !p.Server.Drain(ctx, func() bool { return p.streams.Load() == 0 }) {
		cut = p.InProgress()
		p.Cut()
	}
	return cut
}

// InFlight returns how many requests and fan-out legs are in flight.
func (p *Proxy) InFlight() int { return p.inFlight.Now() }

// InProgress returns two counts: requests and fan-out legs in flight, and requests whose body is
// still arriving. For a moment a request counts in both.
func (p *Proxy) InProgress() int {
	uploads, _, _ := p.uploads.now() // first, since uploads become requests in flight
	return uploads + p.inFlight.Now()
}
