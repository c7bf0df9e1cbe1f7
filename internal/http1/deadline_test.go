package http1

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/socket"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
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
func inBubble(t *testing.T, opts func() *Options, test func(t *testing.T, conn upstream.Conn, p *peer, owner *recorder)) {
	for _, k := range kinds {
		testsupport.RunBubble(t, string(k), func(t *testing.T) {
			s, p := pipe(t)
			owner := newRecorder()
			conn := k.open(s, s, owner, opts())
			t.Cleanup(func() { conn.Close(upstream.ClosedDrain) })
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

func lingering() *Options {
	opts := testOptions()
	opts.Linger = shortLinger
	return opts
}

// phases hold the part of a response that has arrived at the deadline, and the missing part.
var phases = map[string]struct{ came, missing string }{
	"nothing":      {"", textResponse("late")},
	"status line":  {"HTTP/1.1 20", "0 OK\r\nContent-Length: 4\r\n\r\nlate"},
	"head":         {"HTTP/1.1 200 OK\r\nX: y\r\nContent-", "Length: 4\r\n\r\nlate"},
	"interim":      {"HTTP/1.1 103 Early Hints\r\n\r\n", textResponse("late")},
	"body":         {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nla", "te"},
	"large body":   {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nla", strings.Repeat("x", 99_998)},
	"chunk size":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1", "0\r\n0123456789abcdef\r\n0\r\n\r\n"},
	"chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n01234", "56789abcdef\r\n0\r\n\r\n"},
	"chunk's end":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r", "\n0\r\n\r\n"},
	"trailer":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", "y\r\n\r\n"},
	"chunk behind": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r\n", "1\r\n1\r\n0\r\n\r\n"},
}

// abandonCauses make a caller abandon its exchange at shortBudget.
var abandonCauses = map[string]struct {
	arm func(ex *upstream.Exchange) context.CancelFunc
	err error
}{
	"deadline": {func(ex *upstream.Exchange) context.CancelFunc {
		ex.Deadline = time.Now().Add(shortBudget)
		return func() {}
	}, upstream.ErrDeadline},
	"cancelled": {func(ex *upstream.Exchange) context.CancelFunc {
		ctx, cancel := context.WithTimeout(context.Background(), shortBudget)
		ex.Context = ctx
		return cancel
	}, upstream.ErrCancelled},
}

// A caller returns at its deadline, or when its context ends. The connection is reused if the response
// ends within linger, and is closed otherwise.
func TestCallerReturnsInTimeAndItsConnectionLingers(t *testing.T) {
	for phase, piece := range phases {
		for cause, how := range abandonCauses {
			for _, ends := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/ends=%v", phase, cause, ends), func(t *testing.T) {
					inBubble(t, lingering, func(t *testing.T, conn upstream.Conn, p *peer, owner *recorder) {
						begin := time.Now()
						ex := newExchange(t)
						defer how.arm(ex)()
						done := start(conn, ex)
						p.request()
						p.send(piece.came)
						wantEndsWith(t, done, how.err)
						if took := time.Since(begin); took != shortBudget || ex.Times.Done != begin.Add(shortBudget) {
							t.Fatalf("the caller was freed after %v, Times.Done %v after the start, want %v", took, ex.Times.Done.Sub(begin), shortBudget)
						}
						if !ends {
							p.wantClosed()
							testsupport.MustEqual(t, time.Since(begin), shortBudget+shortLinger, "the connection was closed after %v")
							owner.awaitFreed(t, 2)
							wantReason(t, conn, upstream.ClosedTimeout)
							return
						}
						time.Sleep(shortLinger / 2)
						if freed, _ := owner.counts(); freed != 1 {
							t.Fatal("the place was free while the response was outstanding")
						}
						p.send(piece.missing)
						owner.awaitFreed(t, 2)
						wantReason(t, conn, upstream.NotClosed)
						testsupport.MustTrue(t, conn.Idle(), "the connection cannot be reused")
						exchangeOnce(t, conn, p, "next")
					})
				})
			}
		}
	}
}

func TestWithoutLingerAnAbandonedExchangeClosesItsConnection(t *testing.T) {
	inBubble(t, func() *Options { o := testOptions(); o.Linger = 0; return o }, func(t *testing.T, conn upstream.Conn, p *peer, owner *recorder) {
		begin := time.Now()
		ex := newExchange(t)
		ex.Deadline = begin.Add(shortBudget)
		done := start(conn, ex)
		p.request()
		p.wantClosed()
		wantEndsWith(t, done, upstream.ErrDeadline)
		testsupport.MustEqual(t, time.Since(begin), shortBudget, "the connection was closed after %v")
		owner.awaitFreed(t, 2)
		wantReason(t, conn, upstream.ClosedTimeout)
	})
}

// The peer reads no byte, or stops in the middle of the request.
func TestCallerReturnsInTimeWhenTheRequestCannotBeWritten(t *testing.T) {
	for read, want := range map[int]error{0: upstream.ErrDeadlineNotSent, 1: upstream.ErrDeadline} {
		inBubble(t, lingering, func(t *testing.T, conn upstream.Conn, p *peer, owner *recorder) {
			begin := time.Now()
			ex := newExchange(t)
			ex.Deadline = begin.Add(shortBudget)
			done := start(conn, ex)
			if read > 0 {
				p.conn.Read(make([]byte, read))
			}
			err := wait(t, done)
			if conn.Protocol() == upstream.HTTP1Pipelined && err == upstream.ErrDeadline {
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
