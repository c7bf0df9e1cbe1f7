// Package http1 implements HTTP/1.1 connections to SSPs. Conn, in conn.go and exchange.go, carries one exchange at a
// time; Pipelined, in the files pipelined*.go, carries several. Both read responses with a responseReader, in
// response.go, head.go and headparser.go.
//
// It has a parser of response heads of its own instead of fasthttp's, for three reasons. The parser that decides
// where a response ends must also report the fields of the response. It must see what fasthttp hides: obs-fold, a
// bare LF, Content-Length beside Transfer-Encoding. And it must be able to continue after a deadline, to read an
// abandoned response to its end.
package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// Options are the limits of one SSP's connections, and the state that these connections share. An Options must not be
// changed or copied after the first New.
type Options struct {
	// MaxResponseBytes bounds a response's body. Zero allows no body.
	MaxResponseBytes int
	// MaxResponseHeaderBytes bounds a response's message head, and also its trailer. It must be at least 16.
	MaxResponseHeaderBytes int
	// Linger is how long an abandoned response may be read to its end, so that the connection can
	// be reused. Zero closes the connection at once.
	Linger time.Duration
	// Depth is how many exchanges a pipelined connection carries at once, at least 1. Exclusive
	// connections ignore it.
	Depth int
	// HeadWait, if not nil, observes head-of-line waiting for each response on a pipelined connection: the time from
	// Times.Acquired until the previous response was complete. It is 0 if there was no previous response. Pipelining
	// cannot have delayed the response by more than this time.
	HeadWait *metrics.Histogram

	readers sync.Pool // *bufio.Reader of MaxResponseHeaderBytes
}

// Conn is an exclusive HTTP/1.1 connection: one exchange at a time. It starts a goroutine only for
// an abandoned response. While idle it holds no buffer.
//
// Only the current exchange may use served, response and br; the call of Freed hands them to the next exchange.
type Conn struct {
	net    net.Conn     // sock itself, or TLS on top of it
	sock   *socket.Conn // the socket below net
	tls    *plaintext   // reads from net; nil for cleartext
	source io.Reader    // tls, or net for cleartext
	owner  exchange.Owner
	opts   *Options

	served   int // exchanges that have ended, with or without a response
	response responseReader
	br       *bufio.Reader // nil while idle

	reason atomic.Uint32 // exchange.CloseReason

	// interrupt makes the current exchange stop waiting. The function is made once, to avoid an allocation for each
	// exchange.
	interrupt func()
}

var _ exchange.Conn = (*Conn)(nil)

// New returns a connection on c, which is sock or a TLS connection on it. Close closes c.
func New(c net.Conn, sock *socket.Conn, owner exchange.Owner, opts *Options) *Conn {
	conn := &Conn{net: c, sock: sock, source: c, owner: owner, opts: opts, response: opts.newResponseReader()}
	if c != net.Conn(sock) {
		conn.tls = &plaintext{from: c}
		conn.source = conn.tls
	}
	conn.interrupt = func() {
		conn.net.SetDeadline(time.Unix(1, 0))
	}
	return conn
}

// Protocol returns exchange.HTTP1.
func (c *Conn) Protocol() exchange.Protocol { return exchange.HTTP1 }

// Places returns 1, or 0 once the connection is closed.
func (c *Conn) Places() int {
	if c.CloseReason() != exchange.NotClosed {
		return 0
	}
	return 1
}

// CloseReason implements exchange.Conn.
func (c *Conn) CloseReason() exchange.CloseReason { return exchange.CloseReason(c.reason.Load()) }

// IdleLimit implements exchange.Conn.
func (c *Conn) IdleLimit() time.Duration { return c.response.idleLimit }

// Close implements exchange.Conn. A TLS connection that is idle sends close_notify. A connection
// with an exchange does not, since a stuck peer could delay that write.
func (c *Conn) Close(r exchange.CloseReason) {
	if !c.reason.CompareAndSwap(uint32(exchange.NotClosed), uint32(r)) {
		return
	}
	if r.OfIdle() {
		c.net.Close()
	} else {
		c.sock.Close()
	}
}

// Idle implements exchange.Conn by checking the socket. On TLS, readable bytes may be session
// tickets or a key update, which TLS consumes; any other bytes are unsolicited.
func (c *Conn) Idle() bool {
	state := c.sock.Peek()
	if c.tls != nil && (state == socket.Readable || state == socket.Quiet && c.tls.mayHoldBytes) {
		state = c.tls.peek(c.sock)
	}
	switch state {
	case socket.Quiet:
		return true
	case socket.Readable:
		c.Close(exchange.ClosedUnsolicited)
	default:
		c.Close(exchange.ClosedByPeer)
	}
	return false
}

// Do implements exchange.Conn. The caller's goroutine writes and reads.
func (c *Conn) Do(ex *exchange.Exchange) error {
	ex.Protocol, ex.Reused, ex.Served = exchange.HTTP1, c.served > 0, c.served
	c.net.SetDeadline(ex.Deadline)
	var err error
	switch ctx := ex.Context.(type) {
	case nil:
		err = c.exchange(ex)
	case *exchange.Cancel:
		ctx.Begin(&c.interrupt)
		err = c.exchange(ex)
		ctx.Finish(&c.interrupt)
	default:
		err = c.exchangeUntilCancelled(ex)
	}
	switch {
	case err == nil:
		if c.response.reads <= 1 { // the whole response arrived with its first byte: this saves a reading of the clock, 40 ns
			ex.Times.Done = ex.Times.FirstByte
		}
		c.completeExchange(ex, c.closeReasonAfter())
		return nil
	case errors.Is(err, errAbandoned):
		c.abandon(ex)
		if ex.Context != nil && ex.Context.Err() != nil {
			return exchange.ErrCancelled
		}
		return exchange.ErrDeadline
	default:
		c.completeExchange(ex, exchange.ClosedError)
		return err
	}
}

// closeReasonAfter returns why the connection must be closed after a complete response, or
// NotClosed if it can be reused.
func (c *Conn) closeReasonAfter() exchange.CloseReason {
	switch {
	case c.br.Buffered() > 0:
		return exchange.ClosedLeftover
	case c.response.announcesClose():
		return exchange.ClosedByPeer
	case c.response.header.notReusable:
		return exchange.ClosedError
	default:
		return exchange.NotClosed
	}
}

// completeExchange ends the exchange: it closes the connection with r, or makes it idle.
func (c *Conn) completeExchange(ex *exchange.Exchange, r exchange.CloseReason) {
	if ex.Times.Done.IsZero() {
		ex.Times.Done = time.Now()
	}
	c.release(r, ex.Times.Done.Sub(ex.Times.Acquired), ex.Ticket)
}

func (c *Conn) release(r exchange.CloseReason, held time.Duration, t exchange.Ticket) {
	if c.br != nil {
		c.opts.releaseReader(c.br)
		c.br = nil
	}
	c.served++
	if r != exchange.NotClosed {
		c.Close(r)
	}
	c.owner.Freed(held, t)
}

// abandon lets the caller of Do return. A goroutine reads the response to its end, for at most opts.Linger and within
// the limits of a response, and then releases the place.
func (c *Conn) abandon(ex *exchange.Exchange) {
	ex.Times.Done = time.Now()
	if c.opts.Linger <= 0 {
		c.completeExchange(ex, exchange.ClosedTimeout)
		return
	}
	acquired, ticket := ex.Times.Acquired, ex.Ticket
	c.response.discard = true
	go func() {
		c.net.SetDeadline(time.Now().Add(c.opts.Linger))
		reason := exchange.ClosedTimeout
		if err := c.response.read(c.br, nil); err == nil {
			reason = c.closeReasonAfter()
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			reason = exchange.ClosedError
		}
		c.release(reason, time.Since(acquired), ticket)
	}()
}
