package http1server

import (
	"bytes"
	"errors"
	"io"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/syntax"
)

// Body reads the body of a request over HTTP/1, and consumes no byte after its end.
type Body struct {
	conn    *Conn
	of      Request // nil if the current request has no body
	expects bool    // the client waits for a 100 before it sends the body; none was sent yet
	chunked bool
	left    int64 // bytes of the body or of the current chunk that have not arrived yet

	next    chunkPart
	limit   int64 // most bytes of data; a chunk that exceeds it is refused when its size has arrived
	data    int64 // bytes of data that chunks have announced
	excess  int   // bytes of size lines above fairLine and fairShare; see maxExcess
	trailer int   // most bytes of trailer fields that may still come
}

// chunkPart is the next part of a chunked body. RFC 9112, section 7.1.
type chunkPart uint8

const (
	chunkSize chunkPart = iota
	chunkData
	chunkEnd // the line end behind the data
	trailerLine
	bodyEnd
)

// Errors of Body.Read, beside those of the connection. ErrTrailers means that the trailer is longer
// than a header may be.
var (
	ErrBodyLimit = errors.New("the body is over its limit")
	ErrTrailers  = errors.New("the trailer is over its limit")
	errChunk     = errors.New("malformed chunk")
)

// Bounds of bytes that are not data.
const (
	maxChunkLine = 256      // a size with its extensions and line end
	maxExcess    = 16 << 10 // bound of Body.excess
	fairLine     = 16       // bytes of a size line that never count as excess
	fairShare    = 2        // further such bytes for each byte of data
)

// Body returns the body that the current head announces, or nil. It belongs to r, whose fields are f.
// A chunk over limit is refused when its size has arrived.
func (c *Conn) Body(r Request, f *httpheader.RequestFields, limit int) *Body {
	length := f.ContentLength()
	if length <= 0 && !f.Chunked() {
		return nil
	}
	expect, _ := f.Lookup("Expect")
	c.body = Body{
		conn: c, of: r, chunked: f.Chunked(), left: max(length, 0), expects: !f.HTTP10 && syntax.EqualFold(expect, "100-continue"),
		limit: int64(limit), trailer: c.server.options().MaxHeaderBytes,
	}
	return &c.body
}

// Discard reads and discards the rest of the body if it has at most most bytes, so that the
// connection can be reused. It sends no 100 for it.
func (b *Body) Discard(most int) {
	if b.expects || b.left > int64(most) {
		return
	}
	p := b.conn.server.getBuffer()
	defer b.conn.server.putBuffer(p)
	for n := 0; n <= most; {
		m, err := b.Read(*p)
		n += m
		if err != nil {
			return
		}
	}
}

func (b *Body) ended() bool {
	if b.chunked {
		return b.next == bodyEnd
	}
	return b.left == 0
}

// Read implements io.Reader. It returns io.EOF only at the end of the body. The first Read sends the
// 100 that the client waits for; a client that has sent more than the head does not wait.
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
	n, err := b.readRaw(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
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
	for n < len(p) && b.next != bodyEnd {
		if n > 0 && c.early.empty() {
			return n, nil // the next bytes may not have arrived
		}
		if b.next == chunkData {
			m, err := b.readRaw(p[n:min(int64(len(p)), int64(n)+b.left)])
			n += m
			b.left -= int64(m)
			if b.left == 0 {
				b.next = chunkEnd
			}
			if err != nil {
				return n, err
			}
			continue
		}
		if !c.early.empty() {
			c.deadlines.enter(inBody)
		}
		line := c.early.line()
		switch {
		case line != nil:
			err = b.takeLine(line)
			c.early.skip(c.server, len(line))
		case c.early.len() >= b.longestLine():
			err = b.tooLong()
		case n > 0:
			return n, nil // the rest of the line may not have arrived
		default:
			err = c.early.fill(c.server, c.read)
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			return n, err
		}
	}
	if b.next == bodyEnd {
		err = io.EOF
	}
	return n, err
}

// longestLine returns how long the next line may be, with its line end.
func (b *Body) longestLine() int {
	switch b.next {
	case chunkSize:
		return maxChunkLine
	case chunkEnd:
		return len("\r\n")
	}
	return b.trailer
}

func (b *Body) tooLong() error {
	if b.next == trailerLine {
		return ErrTrailers
	}
	return errChunk
}

// takeLine takes a line that is not data.
func (b *Body) takeLine(line []byte) error {
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	switch {
	case !ok:
		return errChunk
	case len(line) > b.longestLine():
		return b.tooLong()
	case b.next == chunkSize:
		return b.beginChunk(text)
	case len(text) == 0 && b.next == trailerLine:
		b.next = bodyEnd
	case len(text) == 0:
		b.next = chunkSize
	case b.next == chunkEnd:
		return errChunk
	default:
		b.trailer -= len(line)
		name, value, found := bytes.Cut(text, []byte{':'})
		if !found || !syntax.IsToken(name) || !syntax.IsValue(value) {
			return errChunk
		}
	}
	return nil
}

// beginChunk takes a size line. A client may send extensions and tiny chunks, but they must not be
// most of its bytes.
func (b *Body) beginChunk(line []byte) error {
	size, ok := syntax.ParseChunkSize(line)
	if !ok {
		return errChunk
	}
	b.left = int64(size)
	b.excess = max(0, b.excess+len(line)+len("\r")-fairLine-fairShare*min(size, maxExcess))
	b.data += b.left
	switch {
	case b.excess > maxExcess:
		return errChunk
	case size > syntax.MaxChunkSize || b.data > b.limit:
		return ErrBodyLimit
	case size == 0:
		b.next = trailerLine
	default:
		b.next = chunkData
	}
	return nil
}
