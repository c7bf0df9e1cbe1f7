package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/upstream"
)

// How adbuffer reads requests through fasthttp's server.
//
// fasthttp reads ahead, and takes what RFC 9112 forbids. So it is given one head at
// a time, whole, and nothing behind it. readHead finds where a head ends, and
// refuses a bare LF in any head as soon as it comes. fasthttp then parses each head
// once. Package proxy reads the bodies itself (body.go), and fasthttp sees none of
// their bytes; see feign.
//
// A Read cannot tell fasthttp what is wrong with a request. So readHead keeps the
// reason in refusal and returns one byte with an error: fasthttp calls its
// ErrorHandler only where it has a byte of a request.

// stage is what a client's connection waits for, when it waits.
type stage uint8

const (
	idle        stage = iota // a request of which nothing has come
	handshaking              // the rest of the TLS handshake
	inHead                   // the rest of a head
	beforeBody               // the first byte of a body
	inBody                   // the rest of a body
)

// headScan finds the end of a head, and looks at each byte once.
type headScan struct {
	pos     int  // bytes that were looked at
	line    int  // where the line in hand begins
	started bool // the request line has ended; empty lines are allowed before it
}

// next looks at the new bytes of b, all that has come of the head. end is where the
// head ends, 0 where it has not come whole. ok is false for a bare LF.
func (s *headScan) next(b []byte) (end int, ok bool) {
	for {
		i := bytes.IndexByte(b[s.pos:], '\n')
		if i < 0 {
			s.pos = len(b)
			return 0, true
		}
		at := s.pos + i
		if at == s.line || b[at-1] != '\r' {
			return 0, false
		}
		empty := at == s.line+1
		s.pos, s.line = at+1, at+1
		switch {
		case !empty:
			s.started = true
		case s.started:
			return s.line, true
		}
	}
}

// errRefused is what Read returns for a request that is refused.
var errRefused = errors.New("the request is refused")

// readHead reads one head into b, which is all of the server's buffer. What has
// come behind the head stays in early.
func (c *clientConn) readHead(b []byte) (int, error) {
	if len(b) != c.proxy.server.ReadBufferSize {
		return c.refuseHead(b, malformed("the server reads the requests of this connection differently"))
	}
	var scan headScan
	for n := c.early.take(c.proxy, b); ; {
		end, ok := scan.next(b[:n])
		switch {
		case !ok:
			return c.refuseHead(b, malformed("a line of the head ends in a bare LF"))
		case end > 0:
			c.early.keep(c.proxy, b[end:n])
			c.stage, c.owed = beforeBody, 1
			return end, nil
		case n == len(b):
			return c.refuseHead(b, c.proxy.current().headTooLarge())
		}
		c.stage = idle
		if n > 0 {
			c.stage = inHead
		}
		m, err := c.read(b[n:])
		if m > 0 && !c.heard.Load() {
			c.heard.Store(true)
		}
		n += m
		switch {
		case m > 0 || err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && c.stage == idle:
			c.leave()
			return 0, io.EOF
		case errors.Is(err, os.ErrDeadlineExceeded):
			return c.refuseHead(b, c.proxy.current().notReadInTime())
		case (scan.started || scan.line < n) && !errors.Is(err, net.ErrClosed):
			return c.refuseHead(b, malformed("the head ended early"))
		default:
			return 0, err
		}
	}
}

// refuseHead returns what Read returns for a head that is refused.
func (c *clientConn) refuseHead(b []byte, f *fault) (int, error) {
	b[0], c.refusal = 'X', f
	return 1, errRefused
}

// feign answers the server's Reads of a body. fasthttp asks for the first byte
// before it calls the handler, and for the rest before the next request. It is given
// as many bytes as it expects, whatever they are, and an error beyond that: then it
// does not agree about where the request ends, and closes the connection.
func (c *clientConn) feign(b []byte) (int, error) {
	if c.owesChunk {
		c.owesChunk = false
		return copy(b, "0\r\n\r\n"), nil
	}
	n := int(min(int64(len(b)), c.owed))
	if c.owed -= int64(n); n == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// settle makes fasthttp believe that it has read the body of the request in hand,
// and reports whether the next request can follow.
func (c *clientConn) settle(ctx *fasthttp.RequestCtx) bool {
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return true
	}
	switch {
	case c.uploading == nil: // Content-Length: 0
		c.owed = 0
	case c.body.chunked:
		c.owed, c.owesChunk = 0, true
	case c.owed == 1: // its first byte has not been asked for
		c.owed = c.body.length
	default:
		c.owed = c.body.length - 1
	}
	p := c.proxy.getBuffer()
	defer c.proxy.putBuffer(p)
	for {
		if _, err := stream.Read(*p); err != nil {
			return errors.Is(err, io.EOF) && c.owed == 0
		}
	}
}

// refuseUnread is fasthttp's ErrorHandler: a request that it could not read. One of
// which nothing has come is none. A client that had opened its connection ahead of
// need would take the response for that to its first request, and probes of load
// balancers would count as errors.
func (p *Proxy) refuseUnread(ctx *fasthttp.RequestCtx, _ error) {
	c := clientOf(ctx)
	f := c.refusal
	switch {
	case f != nil:
	case c.stage == idle:
		c.Close() //nolint:errcheck // that is all there is to say
		return
	default:
		f = malformed("the request line or a field is malformed")
	}
	status := f.status
	if status == 0 {
		status = statuses[f.outcome]
	}
	c.unread = true
	g := p.current()
	g.ended(nil, f.outcome, 0)
	id := g.newRequestID()
	g.writeOwn(ctx, f.outcome, status, id, "", f.detail)
	g.setRequestID(ctx, id)
}

func malformed(detail string) *fault { return &fault{outcome: upstream.BadRequest, detail: detail} }
