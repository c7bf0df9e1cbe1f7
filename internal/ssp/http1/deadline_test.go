package http1

import (
	"bufio"
	"net"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// These tests run in a synctest bubble, so times are exact. The connection is a net.Pipe, which has
// no buffer: a write waits for a read.

// pipe returns both ends of a connection within a bubble.
func pipe(tb testing.TB) (*socket.Conn, *peer) {
	a, b := net.Pipe()
	tb.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return socket.New(a), &peer{tb: tb, tcp: b, conn: b, in: bufio.NewReader(b)}
}

// inBubble runs test for each kind of connection, after one exchange that succeeded.
func inBubble(t *testing.T, opts func() *Options, test func(t *testing.T, conn exchange.Conn, p *peer, owner *recorder)) {
	for _, k := range kinds {
		testsupport.RunBubble(t, string(k), func(t *testing.T) {
			s, p := pipe(t)
			owner := newRecorder()
			conn := k.open(s, s, owner, opts())
			t.Cleanup(func() { conn.Close(exchange.ClosedDrain) })
			ex, done := ask(t, conn, p)
			p.send(textResponse("first"))
			wantResponse(t, wait(t, done), ex, 200, "first")
			owner.awaitFreed(t, 1)
			test(t, conn, p, owner)
		})
	}
}

const (
	shortBudget = 100 * time.Millisecond
	shortLinger = 50 * time.Millisecond
)

func lingering() *Options { return with(func(o *Options) { o.Linger = shortLinger }) }

func TestWithoutLingerAnAbandonedExchangeClosesItsConnection(t *testing.T) {
	inBubble(t, func() *Options { return with(func(o *Options) { o.Linger = 0 }) }, func(t *testing.T, conn exchange.Conn, p *peer, owner *recorder) {
		begin := time.Now()
		ex := newExchange(t)
		ex.Deadline = begin.Add(shortBudget)
		done := start(conn, ex)
		p.request()
		p.wantClosed()
		wantEndsWith(t, done, exchange.ErrDeadline)
		testsupport.MustEqual(t, time.Since(begin), shortBudget, "the connection was closed after %v")
		owner.awaitFreed(t, 2)
		wantReason(t, conn, exchange.ClosedTimeout)
	})
}

// The peer reads no byte, or stops in the middle of the request.
func TestCallerReturnsInTimeWhenTheRequestCannotBeWritten(t *testing.T) {
	for read, want := range map[int]error{0: exchange.ErrDeadlineNotSent, 1: exchange.ErrDeadline} {
		inBubble(t, lingering, func(t *testing.T, conn exchange.Conn, p *peer, owner *recorder) {
			begin := time.Now()
			ex := newExchange(t)
			ex.Deadline = begin.Add(shortBudget)
			done := start(conn, ex)
			if read > 0 {
				p.conn.Read(make([]byte, read))
			}
			err := wait(t, done)
			if conn.Protocol() == exchange.HTTP1Pipelined && err == exchange.ErrDeadline {
				err = want // the reader may end first: then it does not know that no byte was sent
			}
			testsupport.MustTrue(t, err == want, "error %v with %d bytes read, want %v", err, read, want)
			testsupport.MustEqual(t, time.Since(begin), shortBudget, "the caller was freed after %v")
			p.wantClosed()
			owner.awaitFreed(t, 2)
			testsupport.MustEqual(t, conn.Places(), 0, "a connection with half a request written is reused: %v")
		})
	}
}
