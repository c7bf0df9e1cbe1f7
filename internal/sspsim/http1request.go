package sspsim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

const (
	maxHeadBytes    = 64 << 10
	maxTrailerBytes = 8 << 10
	maxChunkLine    = 256
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

func (s span) field() Field { return Field{Name: string(s.name), Value: string(s.value)} }

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

// requestReader reads requests from a connection. Its buffers grow on demand.
type requestReader struct {
	src     *bufio.Reader
	maxBody int

	head, body []byte // of the current request
	trailer    []byte // of the current request; before the trailer arrives, a line between chunks
}

// line appends the next line to dst. dst must not grow beyond limit bytes.
func (r *requestReader) line(dst []byte, limit int, what string) ([]byte, error) {
	for {
		part, err := r.src.ReadSlice('\n')
		dst = append(dst, part...)
		switch {
		case len(dst) > limit:
			return dst, &badRequest{431, fmt.Sprintf("%s is over %d bytes", what, limit)}
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil && !bytes.HasSuffix(dst, crlf):
			return dst, bad("%s: line ends in LF without CR", what)
		}
		return dst, err
	}
}

var crlf = []byte("\r\n")

// block appends lines to dst, up to and including an empty one.
func (r *requestReader) block(dst []byte, limit int, what string) ([]byte, error) {
	for {
		start := len(dst)
		var err error
		dst, err = r.line(dst, limit, what)
		if err != nil || len(dst)-start == len(crlf) {
			return dst, err
		}
	}
}

// readMessageHead reads a message head into q. The error is a *badRequest, or that of the connection:
// io.EOF between two requests, io.ErrUnexpectedEOF within a message head.
func (r *requestReader) readMessageHead(q *http1Request) error {
	var err error
	r.head, err = r.block(r.head[:0], maxHeadBytes, "head")
	if err != nil {
		if errors.Is(err, io.EOF) && len(r.head) > 0 {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	*q = http1Request{head: r.head, fields: q.fields[:0], trailer: q.trailer[:0], length: -1}
	return q.parse()
}

// readBody reads the body of the request whose message head was just read.
func (r *requestReader) readBody(q *http1Request) error {
	r.body = r.body[:0]
	var err error
	switch {
	case q.chunked:
		err = r.readChunks(q)
	case q.length > int64(r.maxBody):
		err = &badRequest{413, fmt.Sprintf("body of %d bytes is over %d", q.length, r.maxBody)}
	case q.length > 0:
		err = r.readMore(int(q.length))
	}
	q.body = r.body
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readMore appends n bytes to the body.
func (r *requestReader) readMore(n int) error {
	start := len(r.body)
	r.body = slices.Grow(r.body, n)[:start+n]
	_, err := io.ReadFull(r.src, r.body[start:])
	return err
}

func (r *requestReader) readChunks(q *http1Request) error {
	for {
		var err error
		r.trailer, err = r.line(r.trailer[:0], maxChunkLine, "chunk size")
		if err != nil {
			return err
		}
		size, err := chunkSize(bytes.TrimSuffix(r.trailer, crlf))
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if len(r.body)+size > r.maxBody {
			return &badRequest{413, fmt.Sprintf("chunked body is over %d bytes", r.maxBody)}
		}
		if err := r.readMore(size); err != nil {
			return err
		}
		r.trailer, err = r.line(r.trailer[:0], maxChunkLine, "end of chunk")
		if err != nil {
			return err
		}
		if len(r.trailer) > len(crlf) {
			return bad("chunk is longer than its size")
		}
	}
	var err error
	r.trailer, err = r.block(r.trailer[:0], maxTrailerBytes, "trailer")
	if err != nil {
		return err
	}
	q.trailer, err = parseFields(q.trailer, r.trailer)
	return err
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
