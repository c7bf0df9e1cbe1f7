package proxy

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/httpsyntax"
	"adbuffer/internal/upstream"
)

// stream is a request of HTTP/2; reused.
type stream struct {
	// ctx takes the answer, as that of a request of HTTP/1 does. Of its request
	// only the method is set.
	ctx     fasthttp.RequestCtx
	context context.Context // ends when the client resets the stream
	writer  *http.ResponseController
	sending *upstream.Exchange // what the answer's body is of, nil for none

	goneFunc func() bool // gone, made once
}

var streams = sync.Pool{New: func() any {
	s := new(stream)
	s.goneFunc = s.gone
	return s
}}

func acquireStream(w http.ResponseWriter, req *http.Request) *stream {
	s := streams.Get().(*stream)
	s.context, s.writer = req.Context(), http.NewResponseController(w)
	s.ctx.Request.Header.SetMethod(req.Method)
	s.ctx.Response.Header.SetNoDefaultContentType(true)
	return s
}

func (s *stream) release() {
	if s.sending != nil {
		s.sending.Release()
	}
	s.sending, s.context, s.writer = nil, nil, nil
	s.ctx.Request.Reset()
	s.ctx.Response.Reset()
	streams.Put(s)
}

// gone reports whether the client has reset the stream, or left.
func (s *stream) gone() bool { return s.context.Err() != nil }

// awaitBody gives the client timeout for what it awaits of the body.
func (s *stream) awaitBody(timeout time.Duration) {
	s.writer.SetReadDeadline(time.Now().Add(timeout)) //nolint:errcheck // the server of HTTP/2 has it
}

// stop implements stopper.
func (s *stream) stop() {
	s.writer.SetReadDeadline(time.Unix(0, 0)) //nolint:errcheck // as above
}

// handleStream is handle, for HTTP/2.
func (p *Proxy) handleStream(c *clientConn, s *stream, w http.ResponseWriter, req *http.Request) {
	p.forwardStream(c, s, req)
	if s.gone() {
		return
	}
	s.answer(w, req.Method == http.MethodHead, p.draining.Load(), p.current().opts.WriteTimeout)
}

func (p *Proxy) forwardStream(c *clientConn, s *stream, req *http.Request) {
	r := p.acquire(c)
	r.stream = s
	defer p.done(&s.ctx, r)
	p.respond(&s.ctx, r, r.checkStream(req))
}

// answer sends what is in ctx. The client has timeout to take it: one that opens
// no window holds its answer no longer.
func (s *stream) answer(w http.ResponseWriter, head, last bool, timeout time.Duration) {
	res := &s.ctx.Response
	status, body := res.StatusCode(), res.Body()
	h := w.Header()
	for name, value := range httpheader.ResponseFields(&res.Header) {
		if key := http.CanonicalHeaderKey(string(name)); !httpsyntax.IsConnectionSpecific([]byte(key)) {
			h[key] = append(h[key], string(value))
		}
	}
	if status == http.StatusNoContent {
		delete(h, "Content-Length")
	} else if h["Content-Length"] == nil && (len(body) > 0 || !head && status != http.StatusNotModified) {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // it would be guessed otherwise
	}
	if last {
		h["Connection"] = []string{"close"} // makes a GOAWAY, and is not sent
	}
	s.writer.SetWriteDeadline(time.Now().Add(timeout)) //nolint:errcheck // the server of HTTP/2 has it
	w.WriteHeader(status)
	if !head && len(body) > 0 {
		w.Write(body) //nolint:errcheck // the client has left, and its stream is gone
	}
}
