package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// errAbandoned says that the deadline passed, or that the exchange was cancelled, before its
// response was complete.
var errAbandoned = errors.New("abandoned")

// exchangeUntilCancelled runs exchange, and interrupts its reads and writes when ex.Context ends. No interruption
// happens after it has returned.
func (c *Conn) exchangeUntilCancelled(ex *exchange.Exchange) error {
	done := make(chan struct{})
	stop := context.AfterFunc(ex.Context, func() {
		c.interrupt()
		close(done)
	})
	err := c.exchange(ex)
	if !stop() {
		<-done
	}
	return err
}

func (c *Conn) exchange(ex *exchange.Exchange) error {
	writeErr := c.write(ex)
	if writeErr != nil && writeErr.Progress == exchange.NotSent {
		return writeErr
	}
	c.br = c.opts.acquireReader(c.source)
	c.response.start(ex.Request.Method)
	if writeErr != nil {
		return c.readEarly(ex, writeErr)
	}
	err := c.response.read(c.br, ex)
	if errors.Is(err, os.ErrDeadlineExceeded) && (ex.Context == nil || ex.Context.Err() == nil) {
		// Bytes that arrived before the deadline count even if this goroutine reads them late.
		c.sock.SetNonblocking(true)
		err = c.response.read(c.br, ex)
		c.sock.SetNonblocking(false)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded), socket.WouldBlock(err):
		return errAbandoned
	default:
		return c.response.asError(err, c.response.hasBegun(c.br), c.served > 0)
	}
}

// readEarly reads the response of an SSP that did not read the whole request, so that writing the request failed with
// writeErr: RFC 9112, section 9.5. It takes only bytes that have arrived, and does not wait. It returns writeErr if no
// response, or only a part of one, has arrived so far.
func (c *Conn) readEarly(ex *exchange.Exchange, writeErr error) error {
	c.sock.SetNonblocking(true)
	err := c.response.read(c.br, ex)
	c.sock.SetNonblocking(false)
	switch {
	case err == nil:
		c.response.header.notReusable = true
		return nil
	case socket.WouldBlock(err), !c.response.hasBegun(c.br):
		return writeErr
	default:
		return c.response.asError(err, true, c.served > 0)
	}
}

// write sends the request: in one write if message head and body fit into a buffer. It returns nil
// if it sent the whole request.
func (c *Conn) write(ex *exchange.Exchange) *exchange.Error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	*b = appendMessageHead((*b)[:0], &ex.Request)
	body := ex.Request.Body
	if len(*b)+len(body) <= maxJoined {
		*b = append(*b, body...)
		body = nil
	}
	n, err := c.writeHead(*b)
	if err == nil && len(body) > 0 {
		_, err = c.net.Write(body)
	}
	if err == nil {
		return nil
	}
	progress := exchange.MaybeProcessed
	if n == 0 {
		progress = exchange.NotSent
	}
	switch {
	case ex.Context != nil && ex.Context.Err() != nil:
		return exchange.ErrCancelled
	case errors.Is(err, os.ErrDeadlineExceeded) && n == 0:
		return exchange.ErrDeadlineNotSent
	case errors.Is(err, os.ErrDeadlineExceeded):
		return exchange.ErrDeadline
	}
	return &exchange.Error{Outcome: exchange.ConnLost, Progress: progress, Stale: c.served > 0, Detail: "while sending the request", Err: err}
}

// writeHead sends b, the message head with a small body. Without TLS, it sends b together with the requests that other
// goroutines write: see socket.Conn.WriteInBurst. With TLS, it lets the goroutines that are ready run after the write, so
// that the response may have arrived when this goroutine reads it, and the read need not wait in the poller.
func (c *Conn) writeHead(b []byte) (int, error) {
	if c.tls == nil {
		return c.sock.WriteInBurst(b)
	}
	n, err := c.net.Write(b)
	runtime.Gosched()
	return n, err
}

// isConnError reports whether err came from the connection, and not from the parser.
func isConnError(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}

// maxJoined is the largest request that is copied into one write. A larger request takes two writes: message head,
// then body.
const maxJoined = 64 << 10

// buffers holds the write buffers. Each has at most maxJoined bytes plus a message head.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func (o *Options) acquireReader(r io.Reader) *bufio.Reader {
	if br, ok := o.readers.Get().(*bufio.Reader); ok {
		br.Reset(r)
		return br
	}
	return bufio.NewReaderSize(r, o.MaxResponseHeaderBytes)
}

func (o *Options) releaseReader(br *bufio.Reader) {
	br.Reset(nil)
	o.readers.Put(br)
}

// appendMessageHead appends r's message head as HTTP/1.1: request line, Host, the end-to-end
// fields, Content-Length, and the empty line. RFC 9112, section 3.
func appendMessageHead(dst []byte, r *exchange.Request) []byte {
	dst = append(dst, r.Method.String()...)
	dst = append(dst, ' ')
	dst = append(dst, r.Target...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, r.Authority...)
	dst = append(dst, '\r', '\n')
	dst = append(dst, r.Fields...)
	if len(r.Body) > 0 || r.Method == exchange.POST {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(r.Body)), 10)
		dst = append(dst, '\r', '\n')
	}
	return append(dst, '\r', '\n')
}
