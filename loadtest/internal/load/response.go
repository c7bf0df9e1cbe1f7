package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"adbuffer/internal/syntax"
)

// maxHead bounds the message head of a response and each line of a chunked body.
const maxHead = 64 << 10

// Response holds the parts of a response that the recorder needs. Its slices are valid until the
// parser reads the next response.
type Response struct {
	Status int
	Close  bool   // the server closes the connection after it
	Source []byte // X-Adbuffer-Source
	Echo   []byte // X-Echo-Cb, which simulated SSPs can send
	Body   int64  // length of the body without its framing
	// Start is the beginning of the body. After the end of a short body it is 0.
	Start [numberDigits]byte
}

// Parser reads the responses of one connection in order. It keeps the framing and a few fields and
// discards the rest, so that large bodies cost no memory. The zero value is ready for a response.
type Parser struct {
	Response
	state  parserState
	left   int64 // bytes of the body or chunk that are still missing
	source [96]byte
	echo   [64]byte
}

type parserState uint8

const (
	inHead parserState = iota
	inBody
	inBodyToEOF
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
)

// Started reports whether the parser is in the middle of a response.
func (p *Parser) Started() bool { return p.state != inHead }

// Next consumes the first n bytes of b. If done is true, a response is complete, and b[n:] belongs to
// the next response. Otherwise the caller keeps b[n:] and calls Next again with more bytes after it.
func (p *Parser) Next(b []byte) (n int, done bool, err error) {
	for {
		switch p.state {
		case inHead:
			used, err := p.head(b[n:])
			if used == 0 || err != nil {
				return n, false, err
			}
			n += used
			if p.state == inHead { // an interim response, or one without a body
				if p.Status < 200 {
					continue
				}
				return n, true, nil
			}
		case inBody, inChunk:
			take := min(p.left, int64(len(b)-n))
			p.left -= take
			p.body(b[n : n+int(take)])
			n += int(take)
			if p.left > 0 {
				return n, false, nil
			}
			if p.state == inBody {
				p.state = inHead
				return n, true, nil
			}
			p.state = inChunkEnd
		case inBodyToEOF:
			p.body(b[n:])
			return len(b), false, nil
		default:
			line, _, ok := bytes.Cut(b[n:], []byte("\r\n"))
			if !ok {
				if len(b)-n > maxHead {
					return n, false, errors.New("a line of a chunked body is too long")
				}
				return n, false, nil
			}
			n += len(line) + 2
			if done, err = p.chunkLine(line); done || err != nil {
				return n, done, err
			}
		}
	}
}

// body counts a piece of the body.
func (p *Parser) body(b []byte) {
	if p.Body < numberDigits {
		copy(p.Start[p.Body:], b)
	}
	p.Body += int64(len(b))
}

// EndsWithConnection reports whether the close of the connection completes the current response.
func (p *Parser) EndsWithConnection() bool { return p.state == inBodyToEOF }

// Reset prepares the parser for another connection. It keeps the last response.
func (p *Parser) Reset() { p.state = inHead }

// head parses the message head at the start of b. It returns its length, or 0 if it is incomplete.
func (p *Parser) head(b []byte) (int, error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) > maxHead {
			return 0, errors.New("the head is too long")
		}
		return 0, nil
	}
	line, rest := b[:end+2], []byte(nil)
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line, rest = line[:i+1], line[i+1:]
	}
	if len(line) < 14 || string(line[:7]) != "HTTP/1." || line[8] != ' ' || line[12] != ' ' && line[12] != '\r' {
		return 0, fmt.Errorf("not a status line: %.40q", line)
	}
	status, ok := syntax.ParseStatus(line[9:12])
	if !ok {
		return 0, fmt.Errorf("not a status: %.3q", line[9:])
	}
	p.Response = Response{Status: status, Close: line[7] == '0'}
	length, chunked := int64(-1), false
	for len(rest) > 0 {
		name, value, after := syntax.CutField(rest)
		if !syntax.IsToken(name) {
			return 0, fmt.Errorf("not a header field: %.40q", rest)
		}
		rest = after
		switch {
		case syntax.EqualFold(name, "content-length"):
			n, ok := syntax.ParseNumber(value, syntax.MaxNumber)
			if !ok || length >= 0 && length != int64(n) {
				return 0, fmt.Errorf("content-length %.20q", value)
			}
			length = int64(n)
		case syntax.EqualFold(name, "transfer-encoding"):
			if chunked = syntax.EqualFold(value, "chunked"); !chunked {
				return 0, fmt.Errorf("transfer-encoding %.20q", value)
			}
		case syntax.EqualFold(name, "connection") && syntax.EqualFold(value, "close"):
			p.Close = true
		case syntax.EqualFold(name, "connection") && syntax.EqualFold(value, "keep-alive"):
			p.Close = false
		case syntax.EqualFold(name, "x-adbuffer-source"):
			p.Source = append(p.source[:0], value[:min(len(value), len(p.source))]...)
		case syntax.EqualFold(name, "x-echo-cb"):
			p.Echo = append(p.echo[:0], value[:min(len(value), len(p.echo))]...)
		}
	}
	switch {
	case chunked && length >= 0:
		return 0, errors.New("content-length beside transfer-encoding")
	case chunked && b[7] == '0':
		return 0, errors.New("transfer-encoding in HTTP/1.0")
	case p.Status < 200 || p.Status == 204 || p.Status == 304:
		p.state = inHead
	case chunked:
		p.state = inChunkSize
	case length >= 0:
		p.state, p.left = inBody, length
	default:
		p.state, p.Close = inBodyToEOF, true
	}
	return end + 4, nil
}

func (p *Parser) chunkLine(line []byte) (done bool, err error) {
	switch p.state {
	case inChunkSize:
		if i := bytes.IndexByte(line, ';'); i >= 0 {
			line = line[:i]
		}
		size, err := strconv.ParseUint(string(syntax.Trim(line)), 16, 48)
		if err != nil {
			return false, fmt.Errorf("chunk size %.20q", line)
		}
		if p.left, p.state = int64(size), inChunk; size == 0 {
			p.state = inTrailer
		}
	case inChunkEnd:
		if len(line) != 0 {
			return false, errors.New("a chunk is longer than it says")
		}
		p.state = inChunkSize
	case inTrailer:
		if len(line) == 0 {
			p.state = inHead
			return true, nil
		}
	}
	return false, nil
}
