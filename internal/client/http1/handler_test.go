package http1

import (
	"net"
	"net/netip"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"

	"go.uber.org/goleak"
)

// TestMain fails if the tests have left goroutines. It excepts two: each fasthttp server leaves one
// that sleeps for ten seconds, and all servers share one for the date.
func TestMain(m *testing.M) {
	testsupport.Main(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// notFound is a Handler that responds with 404 to each request over HTTP/1, and to each refusal.
type notFound struct{ Handler } // without its methods for HTTP/2

func (notFound) Handle(c *Conn) (Request, *Response) {
	var f header.RequestFields
	_, _, refusal := c.Head(&f)
	return nothing{}, &Response{Status: 404, Length: -1, Close: refusal != nil}
}

func (notFound) Hold(int) {}

func (notFound) Refused(netip.Addr, *Refusal) *Response { return &Response{Status: 404} }

// nothing is a Request that has nothing to release.
type nothing struct{}

func (nothing) Await()   {}
func (nothing) Unread()  {}
func (nothing) Release() {}

// serve serves s at addr. end drains it, which has no client of HTTP/2, and may be called once.
func serve(tb testing.TB, s *Server) (addr string, end func()) {
	tb.Helper()
	l := testsupport.Listen(tb)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr().String(), func() {
		tb.Helper()
		testsupport.True(tb, s.Drain(tb.Context(), func() bool { return true }), "connections are left")
		testsupport.NoError(tb, <-served)
	}
}

// dial connects to addr.
func dial(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	testsupport.NoError(tb, err)
	return c
}
