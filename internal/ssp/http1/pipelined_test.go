package http1

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// dialPipelined returns a pipelined connection and its peer. wrap, if not nil, wraps its socket.
func dialPipelined(tb testing.TB, tr transport, opts *Options, wrap func(net.Conn) net.Conn) (*Pipelined, *peer, *recorder) {
	tb.Helper()
	c, sock, p := connect(tb, tr)
	if wrap != nil {
		c = wrap(c)
	}
	owner := newRecorder()
	conn := NewPipelined(c, sock, owner, opts)
	tb.Cleanup(func() { conn.Close(exchange.ClosedDrain) })
	return conn, p, owner
}

// dialProven returns a pipelined connection that has carried its first response. So it pipelines.
func dialProven(tb testing.TB, tr transport, opts *Options) (*Pipelined, *peer, *recorder) {
	tb.Helper()
	conn, p, owner := dialPipelined(tb, tr, opts, nil)
	prove(tb, conn, p, owner)
	return conn, p, owner
}

// get returns an exchange for GET /name.
func get(tb testing.TB, name string) *exchange.Exchange {
	ex := newExchange(tb)
	ex.Request.Target = []byte("/" + name)
	return ex
}

// prove runs one exchange. After it, conn pipelines.
func prove(tb testing.TB, conn *Pipelined, p *peer, owner *recorder) {
	tb.Helper()
	exchangeOnce(tb, conn, p, "first")
	owner.awaitFreed(tb, 1)
}

// wantRequests reads requests for these names, in this order.
func (p *peer) wantRequests(names ...string) {
	p.tb.Helper()
	for _, name := range names {
		got := p.request()
		testsupport.MustTrue(p.tb, strings.HasPrefix(got, "GET /"+name+" "), "peer: request %q, want %s", got, name)
	}
}

// flight is a list of exchanges in the order of their sending.
type flight struct {
	tb   testing.TB
	p    *peer
	ex   []*exchange.Exchange
	done []<-chan error
}

// send starts exchanges for names. It starts each one after the peer has received the previous one,
// so their order is known.
func send(tb testing.TB, conn *Pipelined, p *peer, names ...string) *flight {
	tb.Helper()
	f := &flight{tb: tb, p: p}
	for _, name := range names {
		ex := get(tb, name)
		f.ex, f.done = append(f.ex, ex), append(f.done, start(conn, ex))
		p.wantRequests(name)
	}
	return f
}

// wantResponse waits for the i-th exchange.
func (f *flight) wantResponse(i int, body string) {
	f.tb.Helper()
	wantResponse(f.tb, wait(f.tb, f.done[i]), f.ex[i], 200, body)
}

func (f *flight) wantError(i int, outcome exchange.Outcome, progress exchange.Progress, stale bool) {
	f.tb.Helper()
	wantError(f.tb, wait(f.tb, f.done[i]), outcome, progress, stale)
}

func TestPipelinedResponsesReachTheirRequestsInOrder(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.String(), func(t *testing.T) {
			opts := testOptions()
			opts.HeadWait = metrics.Durations(time.Nanosecond, time.Hour)
			conn, p, owner := dialProven(t, tr, opts)
			f := send(t, conn, p, "a", "b", "c", "d")
			testsupport.MustTrue(t, len(f.done[1]) == 0, "an exchange ended without a response")
			p.send(textResponse("A") + "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nBBB\r\n0\r\nX: y\r\n\r\n")
			f.wantResponse(0, "A")
			f.wantResponse(1, "BBB")
			p.send("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + textResponse(strings.Repeat("C", 100_000)) + textResponse("D"))
			f.wantResponse(2, strings.Repeat("C", 100_000))
			f.wantResponse(3, "D")
			owner.awaitFreed(t, 5)
			wantReason(t, conn, exchange.NotClosed)
			if f.ex[0].Protocol != exchange.HTTP1Pipelined || !f.ex[0].Reused || conn.Places() != opts.Depth || !conn.Idle() {
				t.Fatalf("protocol %v, reused %v, places %d", f.ex[0].Protocol, f.ex[0].Reused, conn.Places())
			}
			testsupport.MustEqual(t, opts.HeadWait.Count(), 5, "the wait at the head was observed %d times")
			testsupport.MustTrue(t, opts.HeadWait.Sum() > 0, "no response waited behind another one")
		})
	}
}

func TestPipelinedResponsesWithoutABodyKeepTheirOrder(t *testing.T) {
	conn, p, owner := dialProven(t, plain, testOptions())
	head := get(t, "head")
	head.Request.Method = exchange.HEAD
	headDone := start(conn, head)
	got := p.request()
	testsupport.MustTrue(t, strings.HasPrefix(got, "HEAD /head "), "request %q", got)
	f := send(t, conn, p, "a", "b", "c")
	p.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" +
		"HTTP/1.1 204 No Content\r\n\r\n" +
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n" +
		textResponse("last"))
	wantResponse(t, wait(t, headDone), head, 200, "")
	testsupport.MustEqual(t, head.Response.ContentLength, 1000, "Content-Length %d")
	wantResponse(t, wait(t, f.done[0]), f.ex[0], 204, "")
	wantResponse(t, wait(t, f.done[1]), f.ex[1], 304, "")
	f.wantResponse(2, "last")
	owner.awaitFreed(t, 5)
	wantReason(t, conn, exchange.NotClosed)
}

func TestPipelinedPostBodiesFollowTheirHeads(t *testing.T) {
	conn, p, _ := dialProven(t, plain, testOptions())
	bodies := []string{"", "small", strings.Repeat("large ", 40_000)}
	var f flight
	for _, body := range bodies {
		ex := newExchange(t)
		ex.Request.Method, ex.Request.Body = exchange.POST, []byte(body)
		f.ex, f.done = append(f.ex, ex), append(f.done, start(conn, ex))
		got := p.request()
		testsupport.MustTrue(t, strings.HasPrefix(got, "POST ") && strings.HasSuffix(got, "\r\n\r\n"+body), "request %.200q", got)
	}
	for i, body := range bodies {
		p.send(textResponse(fmt.Sprint(len(body))))
		wantResponse(t, wait(t, f.done[i]), f.ex[i], 200, fmt.Sprint(len(body)))
	}
}

// countedWrites counts the writes to a connection.
type countedWrites struct {
	net.Conn
	writes []string
}

func (c *countedWrites) Write(b []byte) (int, error) {
	c.writes = append(c.writes, string(b))
	return c.Conn.Write(b)
}

// Requests after the first one wait until it has its response, and then leave in one write.
func TestPipelinedConnectionSendsOneRequestUntilTheFirstResponse(t *testing.T) {
	var counted *countedWrites
	conn, p, owner := dialPipelined(t, plain, testOptions(), func(c net.Conn) net.Conn {
		counted = &countedWrites{Conn: c}
		return counted
	})
	first := get(t, "first")
	firstDone := start(conn, first)
	p.wantRequests("first")
	var done []<-chan error
	for _, name := range []string{"a", "b", "c"} {
		done = append(done, start(conn, get(t, name)))
	}
	awaitOutstanding(t, conn, 4)
	p.send(textResponse("first"))
	wantResponse(t, wait(t, firstDone), first, 200, "first")
	for range done {
		p.request()
	}
	for range done {
		p.send(textResponse("x"))
	}
	for _, d := range done {
		testsupport.NoError(t, wait(t, d))
	}
	owner.awaitFreed(t, 4)
	if len(counted.writes) != 2 || strings.Count(counted.writes[0], "GET /first") != 1 || strings.Count(counted.writes[1], "GET /") != 3 {
		t.Fatalf("writes %q, want one with the first request and one with the others", counted.writes)
	}
}

// awaitOutstanding waits until n requests are in the pipeline. They are encoded then, whether or
// not they were sent.
func awaitOutstanding(tb testing.TB, conn *Pipelined, n int) {
	tb.Helper()
	testsupport.Eventually(tb, fmt.Sprint(n, " requests are outstanding"), func() bool { return conn.outstanding.Load() == int32(n) })
}

func TestMoreExchangesThanPlacesIsABug(t *testing.T) {
	conn, p, _ := dialPipelined(t, plain, with(func(o *Options) { o.Depth = 1 }), nil)
	done := start(conn, get(t, "a"))
	p.wantRequests("a")
	func() {
		defer func() {
			testsupport.True(t, recover() != nil, "a second exchange on a connection with one place was taken")
		}()
		conn.Do(get(t, "b"))
	}()
	p.send(textResponse("A"))
	testsupport.NoError(t, wait(t, done))
}

func TestPipelinedRefusesADeadlineThatHasPassed(t *testing.T) {
	conn, _, owner := dialPipelined(t, plain, testOptions(), nil)
	ex := get(t, "late")
	ex.Deadline = ex.Times.Acquired
	testsupport.MustEqual[error](t, conn.Do(ex), exchange.ErrDeadlineNotSent, "error %v")
	owner.awaitFreed(t, 1)
	wantReason(t, conn, exchange.NotClosed)
}
