package http1

import (
	"errors"
	"io"
	"math"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
)

// Body reads the body of a request over HTTP/1, and consumes no byte after its end.
type Body struct {
	conn      *Conn
	of        Request // the request whose body it is; nil if the current request has no body
	expects   bool    // the request has Expect: 100-continue, and its body has not been read
	remaining int64   // bytes of a body with a Content-Length that have not been read
	chunked   bool
	chunks    syntax.Chunks
}

// Body returns the body that the current head announces, or nil if the request has none. The body belongs to r, whose
// fields are f. limit bounds the data of all chunks together: the chunk that exceeds it is refused when its size line has
// arrived.
func (c *Conn) Body(r Request, f *header.RequestFields, limit int) *Body {
	length := f.ContentLength()
	if length <= 0 && !f.Chunked() {
		return nil
	}
	expect, _ := f.Lookup("Expect")
	c.body = Body{
		conn: c, of: r, chunked: f.Chunked(), remaining: max(length, 0), expects: !f.HTTP10 && syntax.EqualFold(expect, "100-continue"),
		chunks: syntax.Chunks{MaxData: limit, MaxTrailer: c.server.options().MaxHeaderBytes, MaxFields: math.MaxInt, BoundExcess: true},
	}
	return &c.body
}

// Discard reads and discards the rest of the body if it is at most limit bytes long, so that the connection can be
// reused. It sends no 100 Continue.
func (b *Body) Discard(limit int) {
	if b.expects || max(b.remaining, int64(b.chunks.DataLeft)) > int64(limit) {
		return
	}
	p := b.conn.server.getBuffer()
	defer b.conn.server.putBuffer(p)
	for n := 0; n <= limit; {
		m, err := b.Read(*p)
		n += m
		if err != nil {
			return
		}
	}
}

func (b *Body) ended() bool {
	if b.chunked {
		return b.chunks.Ended()
	}
	return b.remaining == 0
}

// Read implements io.Reader. It returns io.EOF only at the end of the body. The first Read sends the 100 Continue
// that the client waits for. A client that has sent bytes after the head does not wait for it.
func (b *Body) Read(p []byte) (int, error) {
	if b.expects && b.conn.early.empty() {
		if _, err := b.conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return 0, err
		}
	}
	b.expects = false
	if b.chunked {
		return b.readChunked(p)
	}
	if b.ended() {
		return 0, io.EOF
	}
	n, err := b.readRaw(p[:min(int64(len(p)), b.remaining)])
	b.remaining -= int64(n)
	return n, err
}

// readRaw reads bytes of the body as they arrive. The body must not have ended.
func (b *Body) readRaw(p []byte) (int, error) {
	c := b.conn
	n, err := c.early.take(c.server, p), error(nil)
	if n == 0 {
		n, err = c.read(p)
	}
	if n > 0 {
		c.deadlines.enter(inBody)
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return 0, err
}

func (b *Body) readChunked(p []byte) (n int, err error) {
	c := b.conn
	for n < len(p) && !b.chunks.Ended() {
		if n > 0 && c.early.empty() {
			return n, nil // the next bytes may not have arrived
		}
		if b.chunks.DataLeft > 0 {
			m, err := b.readRaw(p[n:min(len(p), n+b.chunks.DataLeft)])
			n += m
			b.chunks.DataLeft -= m
			if err != nil {
				return n, err
			}
			continue
		}
		if !c.early.empty() {
			c.deadlines.enter(inBody)
		}
		line, err := b.chunks.TakeLine(c.early.bytes())
		switch {
		case err != nil:
			return n, err
		case line > 0:
			c.early.skip(c.server, line)
			continue
		case n > 0:
			return n, nil // the rest of the line may not have arrived
		}
		err = c.early.fill(c.server, c.read)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, err
		}
	}
	if b.chunks.Ended() {
		err = io.EOF
	}
	return n, err
}
