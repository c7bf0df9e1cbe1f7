package http1server

import (
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

	chunk   chunkState
	limit   int64 // most bytes of data; a chunk that exceeds it is refused when its size has arrived
	data    int64 // bytes of data that chunks have announced
	line    int   // bytes of the chunk's size line, or of all trailer fields
	excess  int   // bytes of size lines above fairLine and fairShare; see maxExcess
	trailer int   // most bytes of trailer fields
}

// chunkState is the kind of the next byte of a chunked body. RFC 9112, section 7.1.
type chunkState uint8

const (
	firstDigit chunkState = iota
	digit
	blank     // after the size; an extension must follow
	extension // up to its CR
	sizeLF
	chunkData
	dataCR
	dataLF
	trailerLine // the first byte of a trailer field, or the CR of the empty line
	trailerName
	trailerValue
	trailerLF
	lastLF
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
	maxChunkLine   = 256      // a size with its extensions
	maxExcess      = 16 << 10 // bound of body.excess
	fairLine       = 16       // bytes of a size line that never count as excess
	fairShare      = 2        // further such bytes for each byte of data
	maxChunkDigits = 15       // digits of a size, so that it cannot overflow
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
		return b.chunk == bodyEnd
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
	for n < len(p) && b.chunk != bodyEnd {
		if b.chunk == chunkData {
			if n > 0 && c.early.empty() {
				return n, nil // the next bytes may not have arrived
			}
			m, err := b.readRaw(p[n:min(int64(len(p)), int64(n)+b.left)])
			n += m
			b.left -= int64(m)
			if b.left == 0 {
				b.chunk = dataCR
			}
			if err != nil {
				return n, err
			}
			continue
		}
		if c.early.empty() {
			if n > 0 {
				return n, nil
			}
			if err := c.early.fill(c.server, c.read); err != nil || c.early.empty() {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return 0, err
			}
		}
		c.deadlines.enter(inBody)
		if err := b.frame(c.early.next(c.server)); err != nil {
			return n, err
		}
	}
	if b.chunk == bodyEnd {
		err = io.EOF
	}
	return n, err
}

// frame handles a byte that is not data.
func (b *Body) frame(c byte) error {
	ok := true
	switch b.chunk {
	case firstDigit, digit:
		d := syntax.HexDigit(c)
		switch {
		case d >= 0:
			b.left = b.left<<4 | int64(d)
			b.chunk = digit
			ok = b.line < maxChunkDigits
		case b.chunk == firstDigit:
			ok = false
		default:
			ok = b.endSize(c)
		}
	case blank, extension:
		ok = b.endSize(c)
	case sizeLF:
		if c != '\n' {
			return errChunk
		}
		return b.beginChunk()
	case dataCR:
		ok, b.chunk = c == '\r', dataLF
	case dataLF:
		if c != '\n' {
			return errChunk
		}
		b.chunk, b.line = firstDigit, 0
		return nil
	case trailerLine, trailerName:
		switch {
		case c == '\r' && b.chunk == trailerLine:
			b.chunk = lastLF
		case c == ':' && b.chunk == trailerName:
			b.chunk = trailerValue
		default:
			ok, b.chunk = syntax.IsTokenByte(c), trailerName
		}
	case trailerValue:
		if c == '\r' {
			b.chunk = trailerLF
		} else {
			ok = syntax.IsValueByte(c)
		}
	case trailerLF:
		ok, b.chunk = c == '\n', trailerLine
	case lastLF:
		ok, b.chunk = c == '\n', bodyEnd
	}
	b.line++
	switch {
	case !ok, b.chunk < trailerLine && b.line > maxChunkLine:
		return errChunk
	case b.chunk >= trailerLine && b.line > b.trailer:
		return ErrTrailers
	}
	return nil
}

// endSize handles a byte after the digits of a chunk's size.
func (b *Body) endSize(c byte) bool {
	switch {
	case c == '\r' && b.chunk != blank:
		b.chunk = sizeLF
	case b.chunk == extension:
		return syntax.IsValueByte(c)
	case c == ';':
		b.chunk = extension
	case c == ' ' || c == '\t':
		b.chunk = blank
	default:
		return false
	}
	return true
}

// beginChunk is called at the end of a size line. A client may send extensions and tiny chunks, but
// they must not be most of its bytes.
func (b *Body) beginChunk() error {
	b.excess = max(0, b.excess+b.line-fairLine-fairShare*int(min(b.left, maxExcess)))
	b.data += b.left
	switch {
	case b.excess > maxExcess:
		return errChunk
	case b.data > b.limit:
		return ErrBodyLimit
	case b.left == 0:
		b.chunk, b.line = trailerLine, 0
	default:
		b.chunk = chunkData
	}
	return nil
}
