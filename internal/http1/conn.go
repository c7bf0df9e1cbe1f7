// Package http1 is the HTTP/1.1 connection, exclusive and pipelined.
//
// Heads are parsed here and not by fasthttp's codec, for two reasons. The
// parser that decides where an answer ends must be the one that says which
// fields it has, and must see what the codec hides (obs-fold, bare LF,
// Content-Length beside Transfer-Encoding). And an answer that nobody wants any
// more must be read to its end from wherever it stands, which a codec that
// returns an error midway cannot do.
package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/histogram"
	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// Options are the limits of one SSP's connections, and what they share. They
// must not be changed or copied after the first New.
type Options struct {
	// MaxResponseBytes bounds an answer's body. Zero allows none.
	MaxResponseBytes int
	// MaxResponseHeaderBytes bounds an answer's head, and its trailer section.
	// It must be at least 16.
	MaxResponseHeaderBytes int
	// MaxResponseFields bounds the fields of an answer's header and trailers
	// together. Zero is 256.
	MaxResponseFields int
	// Linger is for how long an abandoned answer may still be read to its end,
	// so that the connection can be used again. Zero closes it at once.
	Linger time.Duration
	// Depth is how many exchanges a pipelined connection carries at once. It is
	// at least 1, and means nothing to an exclusive one.
	Depth int
	// HeadWait, where not nil, observes for each answer on a pipelined
	// connection how long its request stood behind others: from Times.Lent
	// until the answer in front of it was whole, 0 where there was none. It is
	// the most by which pipelining can have delayed that answer.
	HeadWait *histogram.Histogram

	readers sync.Pool // *bufio.Reader of MaxResponseHeaderBytes
}

// Conn is an exclusive HTTP/1.1 connection: one exchange at a time. It starts
// no goroutine but for an abandoned answer, and while idle holds no buffer.
//
// The exchange in hand owns all fields of the second group; the pool sees to it
// that there is one at a time, and Freed passes them on to the next.
type Conn struct {
	net   net.Conn     // sock itself, or TLS on top of it
	sock  *socket.Conn // what net stands on
	tls   *plaintext   // reads from net; nil on cleartext
	owner upstream.Owner
	opts  *Options

	reused   bool // an exchange has ended well
	response responseReader
	br       *bufio.Reader // nil while idle

	reason atomic.Uint32 // upstream.CloseReason
}

var _ upstream.Conn = (*Conn)(nil)

// New returns a connection on c, which is sock or a TLS connection on it, and
// which Close closes.
func New(c net.Conn, sock *socket.Conn, owner upstream.Owner, opts *Options) *Conn {
	conn := &Conn{
		net: c, sock: sock, owner: owner, opts: opts,
		response: opts.newResponseReader(),
	}
	if c != net.Conn(sock) {
		conn.tls = &plaintext{from: c}
	}
	return conn
}

// Protocol returns upstream.HTTP1.
func (c *Conn) Protocol() upstream.Protocol { return upstream.HTTP1 }

// Places returns 1, or 0 once the connection is closed.
func (c *Conn) Places() int {
	if c.CloseReason() != upstream.NotClosed {
		return 0
	}
	return 1
}

// CloseReason implements upstream.Conn.
func (c *Conn) CloseReason() upstream.CloseReason { return upstream.CloseReason(c.reason.Load()) }

// Close implements upstream.Conn. An idle connection says goodbye where TLS
// asks for that; one that is in the middle of something does not, since a stuck
// peer could hold up the write.
func (c *Conn) Close(r upstream.CloseReason) {
	if !c.reason.CompareAndSwap(uint32(upstream.NotClosed), uint32(r)) {
		return
	}
	switch r {
	case upstream.ClosedIdle, upstream.ClosedMaxAge, upstream.ClosedMaxRequests:
		c.net.Close() //nolint:errcheck // nothing is left to be done about it
	default:
		c.sock.Close() //nolint:errcheck // as above
	}
}

// Idle implements upstream.Conn: a look at the socket. On TLS, bytes may be
// session tickets or a key update, which TLS takes in; what is left after that
// is unsolicited.
func (c *Conn) Idle() bool {
	state := c.sock.Peek()
	if c.tls != nil && (state == socket.Readable || state == socket.Quiet && c.tls.full) {
		state = c.tls.peek(c.sock)
	}
	switch state {
	case socket.Quiet:
		return true
	case socket.Readable:
		c.Close(upstream.ClosedUnsolicited)
	default:
		c.Close(upstream.ClosedByPeer)
	}
	return false
}

// Do implements upstream.Conn. The caller's goroutine writes and reads.
func (c *Conn) Do(ex *upstream.Exchange) error {
	ex.Protocol, ex.Reused = upstream.HTTP1, c.reused
	c.net.SetDeadline(ex.Deadline) //nolint:errcheck // a closed socket fails the write
	var err error
	if ex.Context == nil {
		err = c.exchange(ex)
	} else {
		err = c.exchangeUntilCancelled(ex)
	}
	switch {
	case err == nil:
		c.completeExchange(ex, c.closeReasonAfter())
		return nil
	case errors.Is(err, errAbandoned):
		c.abandon(ex)
		if ex.Context != nil && ex.Context.Err() != nil {
			return upstream.ErrCancelled
		}
		return upstream.ErrDeadline
	default:
		c.completeExchange(ex, upstream.ClosedError)
		return err
	}
}

// errAbandoned: the time was up, or the exchange cancelled, while the answer
// was outstanding.
var errAbandoned = errors.New("abandoned")

// exchangeUntilCancelled is exchange with a socket whose deadline passes when
// the context ends. When it returns, nothing else sets deadlines any more.
func (c *Conn) exchangeUntilCancelled(ex *upstream.Exchange) error {
	done := make(chan struct{})
	stop := context.AfterFunc(ex.Context, func() {
		c.net.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed socket ends the exchange too
		close(done)
	})
	err := c.exchange(ex)
	if !stop() {
		<-done
	}
	return err
}

// exchange sends the request and reads the answer.
func (c *Conn) exchange(ex *upstream.Exchange) error {
	if err := c.write(ex); err != nil {
		return err
	}
	c.br = c.opts.acquireReader(c.source())
	c.response.start(ex.Request.Method)
	err := c.response.read(c.br, ex)
	if errors.Is(err, os.ErrDeadlineExceeded) && (ex.Context == nil || ex.Context.Err() == nil) {
		// What came before the deadline counts, also where we are late to read it.
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
		return c.response.asError(err, c.response.hasBegun(c.br), c.reused)
	}
}

// source is where answers are read from.
func (c *Conn) source() io.Reader {
	if c.tls != nil {
		return c.tls
	}
	return c.net
}

// write sends the request, in one write where head and body fit into a buffer.
func (c *Conn) write(ex *upstream.Exchange) error {
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
	progress := upstream.MaybeProcessed
	if n == 0 {
		progress = upstream.NotSent
	}
	switch {
	case ex.Context != nil && ex.Context.Err() != nil:
		return upstream.ErrCancelled
	case errors.Is(err, os.ErrDeadlineExceeded) && n == 0:
		return upstream.ErrDeadlineNotSent
	case errors.Is(err, os.ErrDeadlineExceeded):
		return upstream.ErrDeadline
	}
	return &upstream.Error{Outcome: upstream.ConnLost, Progress: progress, Stale: c.reused, Detail: "while sending the request", Err: err}
}

// writeHead sends the head, with the body where it is small, in a burst with
// others. Either way every goroutine that is ready runs before we read; meanwhile
// the answer may come, and the read need not be tried twice (EAGAIN, park, wake).
func (c *Conn) writeHead(b []byte) (int, error) {
	if c.tls == nil {
		return c.sock.WriteInBurst(b)
	}
	n, err := c.net.Write(b)
	runtime.Gosched()
	return n, err
}

// isConnError reports whether err came from the connection, and not from what
// was read.
func isConnError(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}

// verdict says whether the connection can carry another exchange after a whole
// answer, and if not, why.
func (c *Conn) closeReasonAfter() upstream.CloseReason {
	switch {
	case c.br.Buffered() > 0:
		return upstream.ClosedLeftover
	case c.response.announcesClose():
		return upstream.ClosedByPeer
	case c.response.header.notReusable:
		return upstream.ClosedError
	default:
		return upstream.NotClosed
	}
}

// finish ends the exchange: the connection is closed with r, or idle again.
func (c *Conn) completeExchange(ex *upstream.Exchange, r upstream.CloseReason) {
	if ex.Times.Done.IsZero() {
		if c.response.waits <= 1 && !ex.Times.FirstByte.IsZero() {
			ex.Times.Done = ex.Times.FirstByte // all came at once: no need to ask the clock again
		} else {
			ex.Times.Done = time.Now()
		}
	}
	c.release(r, ex.Times.Done.Sub(ex.Times.Acquired))
}

func (c *Conn) release(r upstream.CloseReason, held time.Duration) {
	if c.br != nil {
		c.opts.releaseReader(c.br)
		c.br = nil
	}
	c.reused = true
	if r != upstream.NotClosed {
		c.Close(r)
	}
	c.owner.Freed(held)
}

// abandon leaves the answer to a goroutine that reads it to its end, for at
// most opts.Linger, and frees the place then. It is bounded by that time and by
// the limits of an answer.
func (c *Conn) abandon(ex *upstream.Exchange) {
	ex.Times.Done = time.Now()
	if c.opts.Linger <= 0 {
		c.completeExchange(ex, upstream.ClosedTimeout)
		return
	}
	lent := ex.Times.Acquired
	c.response.discard = true
	go func() {
		c.net.SetDeadline(time.Now().Add(c.opts.Linger)) //nolint:errcheck // a closed socket fails the read
		reason := upstream.ClosedTimeout
		if err := c.response.read(c.br, nil); err == nil {
			reason = c.closeReasonAfter()
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			reason = upstream.ClosedError
		}
		c.release(reason, time.Since(lent))
	}()
}

// maxJoined is the largest request that is copied into one write. More is
// written as head, then body.
const maxJoined = 64 << 10

// buffers holds the write buffers; none grows over maxJoined, but by a head.
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
