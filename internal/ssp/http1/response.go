package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// responseReader reads one response. A deadline may interrupt the reading at any byte, and it can continue later. So
// an abandoned response can be read to its end and discarded, after which the connection can be reused.
type responseReader struct {
	maxHead int // the longest message head, in bytes; also the size of the bufio.Reader
	maxBody int
	// idleLimit is the shortest limit of all responses so far: see exchange.Conn.IdleLimit.
	idleLimit time.Duration

	toHEAD  bool
	discard bool // the response is abandoned: discard all its bytes

	phase     phase
	reads     int // number of calls that read the socket, and may have waited
	header    headParser
	interim   int // 1xx responses so far
	remaining int // bytes of the body, or of the chunk, that have not arrived
	size      int // bytes of the body so far
	chunks    syntax.Chunks
}

type phase uint8

const (
	inHead phase = iota
	inFixed
	inChunkLine // a size line, the line end after data, or a trailer line
	inChunk
	inUntilClose
	atEnd
)

func (o *Options) newResponseReader() responseReader {
	header := headParser{maxFields: exchange.MaxResponseFields}
	return responseReader{maxHead: o.MaxResponseHeaderBytes, maxBody: o.MaxResponseBytes, idleLimit: exchange.NoIdleLimit, header: header}
}

// maxInterim is how many 1xx responses may precede the final one.
const maxInterim = 16

// start prepares r for the response to a request with method m.
func (r *responseReader) start(m exchange.Method) {
	maxHead, maxBody, idleLimit, maxFields := r.maxHead, r.maxBody, r.idleLimit, r.header.maxFields
	*r = responseReader{}
	r.maxHead, r.maxBody, r.idleLimit, r.header.maxFields, r.toHEAD = maxHead, maxBody, idleLimit, maxFields, m == exchange.HEAD
}

// hasBegun reports whether a byte of the response has arrived in br.
func (r *responseReader) hasBegun(br *bufio.Reader) bool {
	return r.phase != inHead || r.interim > 0 || br.Buffered() > 0
}

// announcesClose reports whether the message head has arrived and announces the close of the
// connection. RFC 9112, sections 6.3 and 9.6.
func (r *responseReader) announcesClose() bool {
	return r.phase != inHead && (r.header.close || r.header.http10 || r.header.framing(r.toHEAD) == untilClose)
}

// read continues until the response is complete or br fails. It stores the response in ex, unless r
// discards; then ex may be nil.
func (r *responseReader) read(br *bufio.Reader, ex *exchange.Exchange) error {
	for {
		var err error
		switch r.phase {
		case inHead:
			err = r.readMessageHead(br, ex)
		case inFixed, inChunk:
			err = r.readBody(br, ex)
		case inChunkLine:
			err = r.readChunkLine(br)
		case inUntilClose:
			err = r.readUntilClose(br, ex)
		case atEnd:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *responseReader) readMessageHead(br *bufio.Reader, ex *exchange.Exchange) error {
	if br.Buffered() == 0 {
		if err := r.fill(br); err != nil {
			return err
		}
	}
	if !r.discard && ex.Times.FirstByte.IsZero() {
		ex.Times.FirstByte = time.Now()
	}
	var lines []byte
	if !r.discard {
		lines = ex.Response.Fields
	}
	// The parser sees at most maxHead bytes: later bytes must not change the result.
	b, _ := br.Peek(min(br.Buffered(), r.maxHead))
	n, lines, err := r.header.parse(b, lines, !r.discard)
	if !r.discard {
		ex.Response.Fields = lines
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return r.fill(br)
	}
	br.Discard(n)
	if r.header.status < 200 {
		if r.header.status == 101 {
			return errSwitching
		}
		r.interim++
		if r.interim > maxInterim {
			return errInterimFlood
		}
		r.header = r.header.behindInterim()
		if !r.discard {
			ex.Response.Fields = ex.Response.Fields[:0]
		}
		return nil
	}
	r.idleLimit = min(r.idleLimit, r.header.idleLimit)
	if !r.discard {
		ex.Response.Status, ex.Response.ContentLength = r.header.status, r.header.statedLength()
	}
	switch r.header.framing(r.toHEAD) {
	case noBody:
		r.phase = atEnd
	case fixedLength:
		r.phase, r.remaining = inFixed, r.header.contentLength
		return r.claim(r.remaining)
	case chunked:
		r.phase = inChunkLine
		r.chunks = syntax.Chunks{MaxData: r.maxBody, MaxTrailer: r.maxHead, MaxFields: r.header.maxFields - r.header.fields}
	case untilClose:
		r.phase = inUntilClose
	}
	return nil
}

// claim adds n bytes, which the SSP has announced as part of the body, to the size of the body. It checks the size
// against the limit, and reserves no memory.
func (r *responseReader) claim(n int) error {
	if n > r.maxBody-r.size {
		return errBodyTooLarge
	}
	r.size += n
	return nil
}

// readBody reads the remaining bytes as they arrive. If they do not fit into the budget, it returns an
// *exchange.Error; after that r can continue only to discard the response.
func (r *responseReader) readBody(br *bufio.Reader, ex *exchange.Exchange) error {
	for r.remaining > 0 {
		var n int
		var err error
		switch {
		case br.Buffered() > 0:
			n, err = r.takeBuffered(br, ex, r.remaining)
		case r.discard:
			err = r.fill(br)
		default:
			r.reads++
			n, err = br.Read(ex.BodyRoom(r.remaining))
			if n > 0 {
				err = ex.TakeBody(n)
			}
		}
		r.remaining -= n
		if err != nil {
			return err
		}
	}
	if r.phase == inFixed {
		r.phase = atEnd
	} else {
		r.phase = inChunkLine
	}
	return nil
}

func (r *responseReader) readChunkLine(br *bufio.Reader) error {
	b, _ := br.Peek(br.Buffered())
	n, err := r.chunks.TakeLine(b)
	switch {
	case err != nil:
		return err
	case n == 0:
		return r.fill(br)
	}
	br.Discard(n)
	switch {
	case r.chunks.Ended():
		r.phase = atEnd
	case r.chunks.DataLeft > 0:
		r.phase, r.remaining, r.chunks.DataLeft = inChunk, r.chunks.DataLeft, 0
	}
	return nil
}

// readUntilClose reads a body that ends with the connection, as in HTTP/1.0.
func (r *responseReader) readUntilClose(br *bufio.Reader, ex *exchange.Exchange) error {
	if br.Buffered() == 0 {
		if err := r.fill(br); err != nil {
			if errors.Is(err, io.EOF) {
				r.phase = atEnd
				return nil
			}
			return err
		}
	}
	if err := r.claim(br.Buffered()); err != nil {
		return err
	}
	_, err := r.takeBuffered(br, ex, br.Buffered())
	return err
}

// takeBuffered takes the buffered part of the next n bytes of the body. It returns how many bytes it took, even if
// they did not fit into the budget.
func (r *responseReader) takeBuffered(br *bufio.Reader, ex *exchange.Exchange, n int) (int, error) {
	n = min(n, br.Buffered())
	var err error
	if !r.discard {
		b, _ := br.Peek(n)
		err = ex.AppendBody(b)
	}
	br.Discard(n)
	return n, err
}

// asError converts the error that ended the reading of a response. hasBegun says that a byte of the
// response had arrived.
func (r *responseReader) asError(err error, hasBegun, reused bool) error {
	var typed *exchange.Error
	e := &exchange.Error{Progress: exchange.MaybeProcessed, Err: err}
	switch {
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, errHeadTooLarge), errors.Is(err, syntax.ErrTrailerTooLarge):
		return exchange.HeaderTooLarge(r.maxHead)
	case errors.Is(err, errBodyTooLarge), errors.Is(err, syntax.ErrChunksTooLarge):
		return exchange.BodyTooLarge(r.maxBody)
	case errors.Is(err, errTooManyFields), errors.Is(err, syntax.ErrTrailerFields):
		return exchange.TooManyFields()
	case !isConnError(err):
		e.Outcome = exchange.BadResponse
	case hasBegun:
		e.Outcome, e.Detail = exchange.ConnLost, "in the middle of the response"
	default:
		e.Outcome, e.Detail = exchange.ConnLost, "before the first byte of the response"
		e.Stale = reused && !errors.Is(err, net.ErrClosed) // a close by adbuffer is not the keep-alive race
	}
	return e
}

// fill waits for at least one byte more than is buffered.
func (r *responseReader) fill(br *bufio.Reader) error {
	if br.Buffered() >= r.maxHead {
		return errHeadTooLarge
	}
	r.reads++
	_, err := br.Peek(br.Buffered() + 1)
	if errors.Is(err, bufio.ErrBufferFull) {
		return errHeadTooLarge
	}
	return err
}
