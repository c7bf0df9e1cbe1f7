package load

import (
	"bytes"
	"net"

	"github.com/valyala/fasthttp"
)

// Constant responds to each request with the same response. It shares a core with the
// generator, so it does as little as possible.
type Constant struct {
	server   *fasthttp.Server
	listener net.Listener
	ended    chan struct{} // closed when the server has ended
}

// ConstantBody returns the JSON body of size bytes, at least 4, that responses carry.
func ConstantBody(size int) []byte {
	b := bytes.Repeat([]byte("x"), max(size, 4))
	copy(b, `{"`)
	copy(b[len(b)-2:], `"}`)
	return b
}

// StartConstant listens on addr and responds with status 200 and a JSON body.
func StartConstant(addr string, body []byte) (*Constant, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Constant{listener: ln, ended: make(chan struct{})}
	s.server = &fasthttp.Server{Name: "constant", NoDefaultDate: true, MaxRequestBodySize: 1 << 20,
		ReadBufferSize: 16 << 10, CloseOnShutdown: true,
		DisableHeaderNamesNormalizing: true, DisablePreParseMultipartForm: true, Concurrency: 1 << 17,
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.Response.Header.SetContentType("application/json")
			ctx.Response.SetBodyRaw(body)
		}}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(ln) // Close ends it
	}()
	return s, nil
}

// Addr returns host:port.
func (s *Constant) Addr() string { return s.listener.Addr().String() }

// Close closes the listener and the idle connections, and returns when all requests have ended.
func (s *Constant) Close() {
	_ = s.server.Shutdown()
	<-s.ended
}
