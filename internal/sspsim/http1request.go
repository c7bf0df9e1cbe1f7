package sspsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	maxHeadBytes    = 64 << 10
	maxTrailerBytes = 8 << 10
	firstBufferSize = 4 << 10
)

// badRequest is a request that violates RFC 9112 or a limit.
type badRequest struct {
	status int // status of the response
	text   string
}

func (e *badRequest) Error() string { return e.text }

func bad(format string, args ...any) error {
	return &badRequest{status: 400, text: fmt.Sprintf(format, args...)}
}

// span is the position of a header field in a message head.
type span struct{ name, value []byte }

// http1Request is one HTTP/1 request. Its slices point into the reader's buffers and are valid
// until the next request is read.
type http1Request struct {
	method, target []byte
	http10         bool
	head           []byte // raw, with the empty line
	fields         []span
	body           []byte
	trailer        []span

	length    int64 // of Content-Length; -1 if absent
	chunked   bool
	close     bool // the peer asks for a close of the connection, or sends HTTP/1.0 without keep-alive
	wait100   bool // Expect: 100-continue
	requestID []byte
}

// requestReader reads requests from src into one buffer that grows on demand.
type requestReader struct {
	src     io.Reader
	maxBody int

	buf        []byte
	start, end int // of the bytes that were read and not consumed

	body, head, trailer []byte // of a request that cannot stay in buf while it is read
}

// fill reads more bytes. It may move the content of the buffer to its front.
func (r *requestReader) fill() error {
	if r.start > 0 && (r.start == r.end || r.end == len(r.buf)) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		r.buf = append(r.buf, make([]byte, max(firstBufferSize, len(r.buf)))...)
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// buffered returns how many bytes were read and not consumed.
func (r *requestReader) buffered() int { return r.end - r.start }

// line returns the length of the line that starts at offset, without its CRLF. It reads as needed.
// The line must end before the offset limit.
func (r *requestReader) line(offset, limit int, what string) (int, error) {
	for scanned := offset; ; {
		if i := bytes.IndexByte(r.buf[r.start+scanned:r.end], '\n'); i >= 0 {
			at := scanned + i
			if at >= limit {
				return 0, &badRequest{431, fmt.Sprintf("%s is over %d bytes", what, limit)}
			}
			if at == offset || r.buf[r.start+at-1] != '\r' {
				return 0, bad("%s: line ends in LF without CR", what)
			}
			return at - 1 - offset, nil
		}
		scanned = r.buffered()
		if scanned >= limit {
			return 0, &badRequest{431, fmt.Sprintf("%s is over %d bytes", what, limit)}
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
}

// readMessageHead reads a message head into q. The error is a *badRequest, or that of src: io.EOF
// between two requests, io.ErrUnexpectedEOF within a message head.
func (r *requestReader) readMessageHead(q *http1Request) error {
	n := 0
	for {
		length, err := r.line(n, maxHeadBytes, "head")
		if err != nil {
			if errors.Is(err, io.EOF) && r.buffered() > 0 {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		if n += length + 2; length == 0 {
			break
		}
	}
	head := r.buf[r.start : r.start+n]
	*q = http1Request{head: head, fields: q.fields[:0], trailer: q.trailer[:0], length: -1}
	r.start += n
	return q.parse()
}

// readBody reads the body of the request whose message head was just read.
func (r *requestReader) readBody(q *http1Request) error {
	var err error
	switch {
	case q.chunked:
		err = r.readChunks(q)
	case q.length > int64(r.maxBody):
		err = &badRequest{413, fmt.Sprintf("body of %d bytes is over %d", q.length, r.maxBody)}
	case q.length > 0:
		err = r.readLength(q, int(q.length))
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *requestReader) readLength(q *http1Request, n int) error {
	if r.buffered() >= n {
		q.body = r.buf[r.start : r.start+n]
		r.start += n
		return nil
	}
	// The message head must keep its position, so the body gets its own buffer.
	if cap(r.body) < n {
		r.body = make([]byte, n)
	}
	q.body = r.body[:n]
	have := copy(q.body, r.buf[r.start:r.end])
	r.start += have
	_, err := io.ReadFull(r.src, q.body[have:])
	return err
}

func (r *requestReader) readChunks(q *http1Request) error {
	// fill moves the content of the buffer, so the message head is copied first.
	r.head = append(r.head[:0], q.head...)
	*q = http1Request{head: r.head, fields: q.fields[:0], trailer: q.trailer[:0], length: -1}
	if err := q.parse(); err != nil {
		return err
	}
	r.body = r.body[:0]
	for {
		n, err := r.line(0, 256, "chunk size")
		if err != nil {
			return err
		}
		size, err := chunkSize(r.buf[r.start : r.start+n])
		if err != nil {
			return err
		}
		r.start += n + 2
		if size == 0 {
			q.body = r.body
			return r.readTrailer(q)
		}
		if len(r.body)+size > r.maxBody {
			return &badRequest{413, fmt.Sprintf("chunked body is over %d bytes", r.maxBody)}
		}
		for size > 0 {
			if r.buffered() == 0 {
				if err := r.fill(); err != nil {
					return err
				}
			}
			have := min(size, r.buffered())
			r.body = append(r.body, r.buf[r.start:r.start+have]...)
			r.start += have
			size -= have
		}
		if n, err = r.line(0, 3, "end of chunk"); err != nil {
			return err
		}
		if n != 0 {
			return bad("chunk is longer than its size")
		}
		r.start += 2
	}
}

// chunkSize parses a chunk's first line and skips extensions.
func chunkSize(line []byte) (int, error) {
	digits, _, _ := bytes.Cut(line, []byte{';'})
	size, err := strconv.ParseUint(string(digits), 16, 63)
	switch {
	case len(digits) == 0:
		return 0, bad("chunk without a size")
	case err != nil || !isValue(line):
		return 0, bad("chunk size %.40q is not hexadecimal", line)
	case len(digits) > 7:
		return 0, bad("chunk size %.40q is over 7 digits", line)
	}
	return int(size), nil
}

func (r *requestReader) readTrailer(q *http1Request) error {
	r.trailer = r.trailer[:0]
	for {
		n, err := r.line(0, maxTrailerBytes, "trailer")
		if err != nil {
			return err
		}
		r.trailer = append(r.trailer, r.buf[r.start:r.start+n+2]...)
		r.start += n + 2
		if n == 0 {
			break
		}
		if len(r.trailer) > maxTrailerBytes {
			return &badRequest{431, fmt.Sprintf("trailer is over %d bytes", maxTrailerBytes)}
		}
	}
	var err error
	q.trailer, err = parseFields(q.trailer[:0], r.trailer)
	return err
}
