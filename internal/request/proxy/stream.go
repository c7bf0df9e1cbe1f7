package proxy

import (
	"strconv"
	"sync"
	"time"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/client/http2"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
)

// stream is a request over HTTP/2 and its response. It implements http2.Request and source. The objects are
// reused.
type stream struct {
	of       *http2.Stream
	proxy    *Proxy
	conn     *http1.Conn
	request  *request   // nil once the response is made
	unread   slowClient // used while the client does not read the response
	response response
	message  http2.Response // made from response
	id       uint32         // id of the stream, a copy that other goroutines may read

	cancel    *exchange.Cancel // ends when the client no longer wants the response
	cancelled bool             // cancel has ended, and must not be reused

	// undecided is true for a GET or HEAD whose stream has not ended, so that it is unknown whether a body
	// follows. If one arrives, the request is refused, as over HTTP/1.
	undecided bool

	goneFunc func() bool // reports whether the client is gone; kept, so that a request allocates no closure
}

var streams = sync.Pool{New: func() any {
	s := &stream{cancel: exchange.NewCancel(), response: response{Response: http1.Response{Length: -1}}}
	s.goneFunc = func() bool { return s.of.Gone() }
	return s
}}

// Open implements http1.Handler.
func (p handler) Open(c *http1.Conn, of *http2.Stream, b *http2codec.RequestBlock, last bool) (http2.Request, *http2.Response) {
	s := streams.Get().(*stream)
	s.of, s.proxy, s.conn, s.id = of, p.Proxy, c, of.ID()
	from := c.Client
	from.Gone, from.Cancel = s.goneFunc, s.cancel
	s.request = p.acquireRequest(from)
	if s.admit(b, last) {
		return s, nil
	}
	s.request = nil
	return s, s.respond()
}

// admit reports whether the request may be forwarded. If not, s.response is complete.
func (s *stream) admit(b *http2codec.RequestBlock, last bool) (ok bool) {
	p, r := s.proxy, s.request
	defer func() {
		if !ok {
			p.done(&s.response, r, recover())
		}
	}()
	f := s.check(b, last)
	s.undecided = f == nil && !last && r.ssp.Method != exchange.POST
	if s.undecided {
		return true
	}
	if !p.admit(&s.response, r, f) {
		return false
	}
	if _, _, f := r.bodyRoom(); f != nil {
		p.refuse(&s.response, r, f)
		return false
	}
	return true
}

// check checks the message head.
func (s *stream) check(b *http2codec.RequestBlock, last bool) *refusal {
	r := s.request
	header, method, target := b.Take(&r.block)
	r.fields.HTTP10, r.fields.HTTP2 = false, true
	s.response.head = string(method) == "HEAD"
	size := len(method) + len(target) + len("  HTTP/1.1\r\n") + len(header) // the size of the same head over HTTP/1.1
	if b.TooLarge || size > r.opts.MaxHeaderBytes {
		return r.opts.HeadTooLarge()
	}
	if err := r.fields.Take(header, b.Lines); err != nil {
		return http1.MalformedFields(err)
	}
	return r.checkStream(method, target, last)
}

// refuse makes the response to a request whose body is late or invalid.
func (s *stream) refuse(f *refusal) *http2.Response {
	p, r := s.proxy, s.request
	s.request = nil
	func() {
		defer func() { p.done(&s.response, r, recover()) }()
		p.refuse(&s.response, r, f)
	}()
	return s.respond()
}

func (s *stream) Data(b []byte) *http2.Response {
	if f := s.proxy.addBody(s.request, b); f != nil {
		return s.refuse(f)
	}
	return nil
}

func (s *stream) Await() { s.proxy.uploads.register(&s.request.upload, s, nil, 0) }

func (s *stream) stopUpload() { go s.conn.HTTP2().Drop(s.id) }

func (s *stream) Dropped() *http2.Response {
	p := s.proxy
	p.uploads.unregister(&s.request.upload, false)
	return s.refuse(p.uploadDropped())
}

func (s *stream) TimedOut() *http2.Response {
	if s.proxy.uploads.unregister(&s.request.upload, false) {
		return s.refuse(s.proxy.uploadDropped())
	}
	return s.refuse(s.request.opts.NotReadInTime())
}

func (s *stream) Serve() *http2.Response {
	p, r := s.proxy, s.request
	s.request = nil
	p.streams.Add(1)
	defer p.streams.Add(-1)
	func() {
		defer func() { p.done(&s.response, r, recover()) }()
		if !s.undecided || p.admit(&s.response, r, nil) {
			p.forward(&s.response, r)
		}
	}()
	return s.respond()
}

func (s *stream) Unread() {
	s.proxy.unread.register(&s.unread, s, s.response.sending, s.response.held())
}

// dropUnread implements source. Until Release, conn and id do not change.
func (s *stream) dropUnread() { go s.conn.HTTP2().DropUnread(s.id) }

func (s *stream) Cancel() {
	s.cancelled = true
	s.cancel.End()
}

func (s *stream) Release() {
	if r := s.request; r != nil {
		s.neverServed(r)
	}
	s.proxy.unread.unregister(&s.unread, false)
	s.response.recycle()
	s.request, s.of, s.proxy, s.conn = nil, nil, nil, nil
	if s.cancelled {
		s.cancel, s.cancelled = exchange.NewCancel(), false
	}
	s.message = http2.Response{}
	streams.Put(s)
}

// neverServed ends a request whose stream ended before the whole request had arrived, or before a worker
// served it.
func (s *stream) neverServed(r *request) {
	p := s.proxy
	e := end{outcome: exchange.ClientGone, at: time.Now()}
	if v := s.of.Violation(); v != "" {
		e.outcome, e.detail = exchange.BadRequest, v
	}
	r.beginTrace(e.at)
	p.ended(&s.response, r, &e)
	p.uploads.unregister(&r.upload, true)
	p.releaseRequest(r)
}

// respond returns the response, with Content-Length if its length is known.
func (s *stream) respond() *http2.Response {
	w := &s.response
	s.message = http2.Response{Status: w.Status, Body: w.Body, Trailers: w.trailers, Drain: s.proxy.Draining(), Pause: w.Pause}
	length, stated := len(w.Body), w.Status != statusNoContent && w.Status != statusNotModified
	if w.head {
		s.message.Body, s.message.Trailers = nil, nil
		length = max(length, w.Length)
		stated = stated && (length > 0 || w.Length == 0)
	}
	if stated && len(s.message.Trailers) == 0 {
		var digits [20]byte
		w.addField("Content-Length", strconv.AppendInt(digits[:0], int64(length), 10))
	}
	s.message.Fields = w.Fields
	return &s.message
}
