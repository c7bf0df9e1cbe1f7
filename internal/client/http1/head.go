package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
)

// messageHead is the message head of the current request. Its slices are parts of the server's read
// buffer, which stays unchanged until the next Read.
type messageHead struct {
	method, target []byte
	fields         []byte // the header, with the empty line that ends it, and all bytes after it
	http10         bool
	read           bool     // Conn.Head has found where it ends
	refusal        *Refusal // the refusal of a head that is malformed or too large, or arrived too slowly
}

// parse splits a request line and the header behind it.
func (h *messageHead) parse(line, fields []byte) {
	method, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\r\n")), []byte{' '})
	target, version, ok := bytes.Cut(rest, []byte{' '})
	h.method, h.target, h.fields = method, target, fields
	switch {
	case !ok || len(target) == 0 || !syntax.IsToken(method):
		h.refusal = Malformed("the request line is not a method, a target and a version")
	case string(version) == "HTTP/1.0":
		h.http10 = true
	case string(version) != "HTTP/1.1": // includes HTTP/2's preface, unless h2c is allowed
		h.refusal = Malformed("the protocol is neither HTTP/1.1 nor HTTP/1.0")
	}
}

// headScan finds the request line of a head, and the end of the head. It reads each byte once.
type headScan struct {
	pos  int // bytes that were read
	line int // where the current line begins
	// The request line is from start to fields, which is 0 before it has ended. Empty
	// lines are allowed before it: RFC 9112, section 2.2.
	start, fields int
}

// next reads the new bytes of b, the bytes that have arrived. It reports whether a whole head is among
// them. ok is false for a bare LF.
//
// Most heads arrive whole, with no bytes after them. So if b ends in an empty line, there is a whole head in b: that
// line ends the head, unless an earlier line does. Then next need not scan the fields, which Conn.Head scans in any
// case. That saves 0.1 µs for a request with 12 fields (BenchmarkHead).
func (s *headScan) next(b []byte) (whole, ok bool) {
	ends := s.pos == 0 && bytes.HasSuffix(b, []byte("\r\n\r\n"))
	for {
		i := bytes.IndexByte(b[s.pos:], '\n')
		if i < 0 {
			s.pos = len(b)
			return false, true
		}
		at := s.pos + i
		if at == s.line || b[at-1] != '\r' {
			return false, false
		}
		begin, empty := s.line, at == s.line+1
		s.pos, s.line = at+1, at+1
		switch {
		case !empty && s.fields == 0:
			s.start, s.fields = begin, s.line
			if ends {
				return true, true
			}
		case empty && s.fields > 0:
			return true, true
		}
	}
}

// constantHeads holds the constant heads for fasthttp, indexed by whether the request is HTTP/1.0 and whether it is
// HEAD. fasthttp needs to know no more for its response.
var constantHeads = [2][2]string{
	{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
}

// constantRoom is the maximum size of the constant head in the server's read buffer.
const constantRoom = 64

// giveConstantHead gives fasthttp its constant head for the current request.
func (c *Conn) giveConstantHead(b []byte) (int, error) {
	if !c.setUnfinished(false) {
		return 0, io.EOF
	}
	http10, head := 0, 0
	if c.head.http10 {
		http10 = 1
	}
	if string(c.head.method) == "HEAD" {
		head = 1
	}
	c.deadlines.enter(beforeBody)
	return copy(b[:constantRoom], constantHeads[http10][head]), nil
}

// refuseHead makes the handler refuse the current request.
func (c *Conn) refuseHead(b []byte, f *Refusal) (int, error) {
	c.head.refusal = f
	return c.giveConstantHead(b)
}

// readHead reads a whole head into b, the server's buffer after the room for the constant head. Bytes
// after the head may follow it there: Head finds its end.
func (c *Conn) readHead(b []byte) (int, error) {
	c.head = messageHead{}
	if len(b) != c.server.http.ReadBufferSize {
		return 0, io.ErrShortBuffer
	}
	first := !c.life.requested.Load()
	in := b[constantRoom:]
	var scan headScan
	for n := c.early.take(c.server, in); ; {
		whole, ok := scan.next(in[:n])
		switch {
		case !ok:
			return c.refuseHead(b, Malformed("a line of the head ends in a bare LF"))
		case whole && first && scan.start == 0 && c.tls == nil && string(in[scan.start:scan.fields]) == prefaceLine && c.server.options().H2C:
			c.upgrade(in[scan.start:n])
			return 0, io.EOF
		case whole:
			c.head.parse(in[scan.start:scan.fields], in[scan.fields:n])
			return c.giveConstantHead(b)
		case n == len(in):
			return c.refuseHead(b, c.server.options().HeadTooLarge())
		}
		c.deadlines.enter(idle)
		if n > 0 {
			c.deadlines.enter(inHead)
		}
		m, err := c.read(in[n:])
		if m > 0 && !c.life.requested.Load() {
			c.life.requested.Store(true)
		}
		n += m
		switch {
		case m > 0 || err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && c.deadlines.stage == idle:
			c.park()
			return 0, io.EOF
		case errors.Is(err, os.ErrDeadlineExceeded):
			return c.refuseHead(b, c.server.options().NotReadInTime())
		case (scan.fields > 0 || scan.line < n) && !errors.Is(err, net.ErrClosed):
			return c.refuseHead(b, Malformed("the head ended early"))
		default:
			return 0, io.EOF // for any other error fasthttp would write a response
		}
	}
}

// Head checks the header of the current request, and classifies its fields for f. It returns the
// method and the target too. All of them are valid until the request is released. Bytes after the head
// stay in early. After a refusal, or without a call of Head, the start of the next request is unknown,
// and the connection closes with the response.
func (c *Conn) Head(f *header.RequestFields) (method, target []byte, refusal *Refusal) {
	h := &c.head
	f.HTTP10, f.HTTP2 = h.http10, false
	if h.refusal == nil {
		end, err := f.ScanStart(h.fields)
		if err != nil {
			h.refusal = MalformedFields(err)
		} else {
			h.read = true
			c.early.keep(c.server, h.fields[end:])
		}
	}
	return h.method, h.target, h.refusal
}
