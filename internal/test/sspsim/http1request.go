package sspsim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/net/http/httpguts"
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

// requestReader reads the requests of an HTTP/1 connection. It is as strict as RFC 9112 allows: it refuses a
// request in which a lenient parser could see other fields or another framing. Its buffers grow on demand.
type requestReader struct {
	src  *bufio.Reader
	keep bool // each request outlives the next one, so neither a Request nor its head is used again

	*Request        // the current request
	raw      []byte // its message head
	rest     []byte // a line between its chunks, and then its trailer
	chunked  bool
	close    bool // the peer asks for a close of the connection, or sends HTTP/1.0 without keep-alive
	wait100  bool // Expect: 100-continue
}

var crlf = []byte("\r\n")

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

// readHead reads the message head of the next request. The error is a *badRequest, or that of the connection.
func (r *requestReader) readHead() error {
	next := r.Request
	if next == nil || r.keep {
		next, r.raw = &Request{}, make([]byte, 0, 1<<10)
	}
	var err error
	r.raw, err = r.block(r.raw[:0], maxHeadBytes, "head")
	if err != nil {
		return err
	}
	*next = Request{Protocol: "HTTP/1.1", Header: next.Header[:0], Body: next.Body[:0], length: -1}
	r.Request, r.chunked, r.close, r.wait100 = next, false, false, false
	r.Head = r.raw
	// The strings of the request share the memory of raw, so that a request allocates nothing.
	line, fields, _ := strings.Cut(unsafe.String(unsafe.SliceData(r.raw), len(r.raw)), "\r\n")
	err = r.parseRequestLine(line)
	if err != nil {
		return err
	}
	r.Header, err = parseFields(r.Header, fields)
	if err != nil {
		return err
	}
	return r.parseFraming()
}

func (r *requestReader) parseRequestLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	space := strings.LastIndexByte(rest, ' ')
	if method == "" || space <= 0 {
		return bad("request line %.80q is not a method, a target and a version", line)
	}
	r.Method, r.Target = method, rest[:space]
	if !httpguts.ValidHeaderFieldName(method) {
		return bad("method %.40q is not a token", method)
	}
	if strings.IndexFunc(r.Target, func(c rune) bool { return c <= ' ' || c == 0x7f }) >= 0 {
		return bad("target %.80q holds a space or a control byte", r.Target)
	}
	switch rest[space+1:] {
	case "HTTP/1.1":
	case "HTTP/1.0":
		r.Protocol = "HTTP/1.0"
	default:
		return &badRequest{505, "version is not HTTP/1.0 or HTTP/1.1"}
	}
	return nil
}

// parseFields appends the fields of block, whose lines end in CRLF, including the empty last line.
func parseFields(fields []Field, block string) ([]Field, error) {
	for {
		line, rest, _ := strings.Cut(block, "\r\n")
		if line == "" {
			return fields, nil
		}
		block = rest
		if line[0] == ' ' || line[0] == '\t' {
			return nil, bad("header line %.80q continues the previous one (obs-fold)", line)
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, bad("header line %.80q has no name", line)
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, bad("field name %.40q is not a token", name)
		}
		value = strings.Trim(value, " \t")
		if !httpguts.ValidHeaderFieldValue(value) {
			return nil, bad("value of %s holds a control byte", name)
		}
		fields = append(fields, Field{name, value})
	}
}

// parseFraming reads the fields that define the end of the request and the persistence of the
// connection. RFC 9112, sections 6.3 and 9.3.
func (r *requestReader) parseFraming() error {
	hosts, keepAlive, http10 := 0, false, r.Protocol == "HTTP/1.0"
	for _, f := range r.Header {
		switch {
		case equalFold(f.Name, "host"):
			hosts++
		case equalFold(f.Name, "expect"):
			r.wait100 = r.wait100 || !http10 && equalFold(f.Value, "100-continue")
		case equalFold(f.Name, "connection"):
			r.close = r.close || httpguts.HeaderValuesContainsToken([]string{f.Value}, "close")
			keepAlive = keepAlive || httpguts.HeaderValuesContainsToken([]string{f.Value}, "keep-alive")
		case equalFold(f.Name, "x-request-id") && r.requestID == "":
			r.requestID = f.Value
		case equalFold(f.Name, "content-length"):
			if r.length >= 0 {
				return bad("two Content-Length fields")
			}
			var ok bool
			r.length, ok = parseLength(f.Value)
			if !ok {
				return bad("Content-Length %.40q is not a number of at most 15 digits", f.Value)
			}
		case equalFold(f.Name, "transfer-encoding"):
			if r.chunked || !equalFold(f.Value, "chunked") {
				return &badRequest{501, "Transfer-Encoding is not chunked, once"}
			}
			r.chunked = true
		}
	}
	switch {
	case hosts > 1 || hosts == 0 && !http10:
		return bad("%d Host fields", hosts)
	case r.chunked && r.length >= 0:
		return bad("Content-Length beside Transfer-Encoding")
	case r.chunked && http10:
		return bad("Transfer-Encoding in HTTP/1.0")
	}
	r.close = r.close || http10 && !keepAlive
	return nil
}

func parseLength(v string) (int64, bool) {
	if len(v) > 15 {
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 63)
	return int64(n), err == nil
}

// readBody reads the body of the request whose message head was just read.
func (r *requestReader) readBody() error {
	switch {
	case r.chunked:
		return r.readChunks()
	case r.length > maxRequestBody:
		return &badRequest{413, fmt.Sprintf("body of %d bytes is over %d", r.length, maxRequestBody)}
	case r.length > 0:
		return r.readMore(int(r.length))
	}
	return nil
}

// readMore appends n bytes to the body.
func (r *requestReader) readMore(n int) error {
	start := len(r.Body)
	r.Body = slices.Grow(r.Body, n)[:start+n]
	_, err := io.ReadFull(r.src, r.Body[start:])
	return err
}

func (r *requestReader) readChunks() error {
	for {
		var err error
		r.rest, err = r.line(r.rest[:0], maxChunkLine, "chunk size")
		if err != nil {
			return err
		}
		size, err := chunkSize(string(bytes.TrimSuffix(r.rest, crlf)))
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		if len(r.Body)+size > maxRequestBody {
			return &badRequest{413, fmt.Sprintf("chunked body is over %d bytes", maxRequestBody)}
		}
		if err := r.readMore(size); err != nil {
			return err
		}
		r.rest, err = r.line(r.rest[:0], maxChunkLine, "end of chunk")
		if err != nil {
			return err
		}
		if len(r.rest) > len(crlf) {
			return bad("chunk is longer than its size")
		}
	}
	var err error
	r.rest, err = r.block(r.rest[:0], maxTrailerBytes, "trailer")
	if err != nil {
		return err
	}
	r.Trailer, err = parseFields(nil, string(r.rest))
	return err
}

// chunkSize parses a chunk's first line and skips extensions.
func chunkSize(line string) (int, error) {
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(digits, 16, 63)
	switch {
	case digits == "":
		return 0, bad("chunk without a size")
	case err != nil || !httpguts.ValidHeaderFieldValue(line):
		return 0, bad("chunk size %.40q is not hexadecimal", line)
	case len(digits) > 7:
		return 0, bad("chunk size %.40q is over 7 digits", line)
	}
	return int(size), nil
}
