package http1

import (
	"bytes"
	"errors"

	"adbuffer/internal/syntax"
)

// framing is how the end of a response's body is found. RFC 9112, section 6.3.
type framing uint8

const (
	noBody framing = iota
	fixedLength
	chunked
	untilClose
)

// head holds the facts about the message and the connection in a status line and a header.
type head struct {
	status int
	http10 bool
	close  bool // Connection: close
	// notReusable says that the response is readable, but the connection must be closed. Causes are
	// obs-fold, a bare LF, Content-Length beside Transfer-Encoding, and a 204 that announces a
	// body.
	notReusable   bool
	hasTE         bool
	contentLength int // -1 for none
}

// framing returns how the body of a response ends. toHEAD says that the request was HEAD.
func (h *head) framing(toHEAD bool) framing {
	switch {
	case toHEAD || h.status < 200 || h.status == 204 || h.status == 304:
		return noBody
	case h.hasTE:
		return chunked
	case h.contentLength >= 0:
		return fixedLength
	default:
		return untilClose
	}
}

// statedLength is the Content-Length, or -1 if there is none. It is also -1 if Content-Length
// has no meaning: beside a Transfer-Encoding, and in a 204. RFC 9110, section 8.6, RFC 9112,
// section 6.3.
func (h *head) statedLength() int {
	if h.hasTE || h.status == 204 {
		return -1
	}
	return h.contentLength
}

// Violations of the protocol in a response. Their text never quotes bytes of the SSP.
var (
	errStatusLine     = errors.New("malformed status line")
	errVersion        = errors.New("neither HTTP/1.1 nor HTTP/1.0")
	errField          = errors.New("malformed header field")
	errFieldValue     = errors.New("control character in a header field")
	errFoldedFraming  = errors.New("folded framing field")
	errContentLength  = errors.New("invalid or repeated Content-Length")
	errTransferCoding = errors.New("a Transfer-Encoding other than one \"chunked\"")
	errInterimFlood   = errors.New("too many 1xx responses")
	errInterimBody    = errors.New("a 1xx response that announces a body")
	errSwitching      = errors.New("101 although no upgrade was requested")
	errChunk          = errors.New("malformed chunk")
	errTrailer        = errors.New("malformed trailer section")
	errHeadTooLarge   = errors.New("header section over its limit")
	errTooManyFields  = errors.New("too many header fields")
	errBodyTooLarge   = errors.New("body over its limit")
)

// parseStatusLine parses "HTTP/1.1 200 OK". The reason phrase may be missing, with or without the
// space in front of it.
func (h *head) parseStatusLine(line []byte) error {
	if len(line) < len("HTTP/1.1 200") || string(line[:7]) != "HTTP/1." || line[8] != ' ' {
		return errStatusLine
	}
	switch line[7] {
	case '1':
	case '0':
		h.http10 = true
	default:
		return errVersion
	}
	status, ok := syntax.ParseStatus(line[9:12])
	if !ok || len(line) > 12 && line[12] != ' ' || !syntax.IsValue(line[12:]) {
		return errStatusLine
	}
	h.status = status
	return nil
}

// cutField splits a field line into its name and its trimmed value.
func cutField(line []byte) (name, value []byte, err error) {
	name, value, ok := bytes.Cut(line, colon)
	if !ok || !syntax.IsToken(name) {
		return nil, nil, errField
	}
	if !syntax.IsValue(value) {
		return nil, nil, errFieldValue
	}
	return name, syntax.Trim(value), nil
}

var colon = []byte(":")

// noteField records what a field says about framing and the connection. It reports whether the
// field is one of these.
func (h *head) noteField(name, value []byte) (bool, error) {
	switch len(name) {
	case len("Connection"):
		if syntax.EqualFold(name, "connection") {
			h.close = h.close || syntax.HasToken(value, "close")
			return true, nil
		}
	case len("Content-Length"):
		if syntax.EqualFold(name, "content-length") {
			n, ok := syntax.ParseNumber(value, syntax.MaxNumber)
			if !ok || h.contentLength >= 0 {
				return true, errContentLength
			}
			h.contentLength = n
			h.notReusable = h.notReusable || h.hasTE
			return true, nil
		}
	case len("Transfer-Encoding"):
		if syntax.EqualFold(name, "transfer-encoding") {
			if h.hasTE || h.http10 || !syntax.EqualFold(value, "chunked") {
				return true, errTransferCoding
			}
			h.hasTE = true
			h.notReusable = h.notReusable || h.contentLength >= 0
			return true, nil
		}
	}
	return false, nil
}

// headParser parses a message head line by line, as it arrives. It reads each byte once, in however
// many pieces they arrive. A zero headParser with maxFields set is at the start of a message head.
//
// It rejects everything that two readers could understand as two different messages. It repairs
// what RFC 9112 lets a proxy repair (obs-fold, a bare LF) and sets notReusable.
type headParser struct {
	head
	maxFields int // fields of the header; more cause errTooManyFields

	fields       int  // fields so far
	first        int  // offset of the first field; 0 until the status line is parsed
	next         int  // offset of the next line
	searched     int  // no LF is between next and this offset
	rewritten    bool // the parser appends lines one by one, instead of all together at the end
	framingField bool // the last field defines the framing
}

// parse continues with the message head that begins at b[0]; b may hold more than at the previous
// call. It returns the length of the message head, or 0 while it is incomplete. It appends the
// fields to lines, which must be the result of the previous call. If keep is false it appends
// nothing.
func (p *headParser) parse(b, lines []byte, keep bool) (int, []byte, error) {
	for {
		line, end, bare, ok := cutLine(b, p.next, p.searched)
		if !ok {
			p.searched = len(b)
			return 0, lines, nil
		}
		start := p.next
		p.next, p.searched = end, end
		if p.first == 0 {
			p.head = head{contentLength: -1, notReusable: bare}
			if err := p.parseStatusLine(line); err != nil {
				return 0, lines, err
			}
			p.first, p.rewritten = end, bare
			continue
		}
		folded := len(line) > 0 && (line[0] == ' ' || line[0] == '\t') // obs-fold, RFC 9112, section 5.2
		if bare || folded {
			p.notReusable = true
			if !p.rewritten { // from here on the parser writes the lines one by one
				p.rewritten = true
				if keep {
					lines = append(lines, b[p.first:start]...)
				}
			}
		}
		switch {
		case len(line) == 0:
			if !p.rewritten && keep {
				lines = append(lines, b[p.first:start]...)
			}
			p.notReusable = p.notReusable || p.status == 204 && (p.hasTE || p.contentLength > 0)
			return end, lines, nil
		case folded:
			var err error
			if lines, err = p.unfold(line, lines, keep); err != nil {
				return 0, lines, err
			}
			continue
		}
		name, value, err := cutField(line)
		if err != nil {
			return 0, lines, err
		}
		if p.fields++; p.fields > p.maxFields {
			return 0, lines, errTooManyFields
		}
		if p.framingField, err = p.noteField(name, value); err != nil {
			return 0, lines, err
		}
		if p.rewritten && keep {
			lines = append(append(lines, line...), '\r', '\n')
		}
	}
}

// unfold appends an obs-fold line to the field before it, with a space between them.
func (p *headParser) unfold(line, lines []byte, keep bool) ([]byte, error) {
	value := syntax.Trim(line)
	switch {
	case p.fields == 0:
		return lines, errField
	case p.framingField:
		return lines, errFoldedFraming
	case !syntax.IsValue(value):
		return lines, errFieldValue
	}
	if keep {
		lines = append(lines[:len(lines)-2], ' ')
		lines = append(append(lines, value...), '\r', '\n')
	}
	return lines, nil
}

// cutLine returns the line that starts at b[from:], without its end, and the offset of the next
// line. bare reports whether the line ended in a bare LF. ok is false while the line is incomplete.
// No LF is between from and searched.
func cutLine(b []byte, from, searched int) (line []byte, next int, bare, ok bool) {
	searched = max(from, searched)
	i := bytes.IndexByte(b[searched:], '\n')
	if i < 0 {
		return nil, 0, false, false
	}
	end := searched + i
	if end > from && b[end-1] == '\r' {
		return b[from : end-1], end + 1, false, true
	}
	return b[from:end], end + 1, true, true
}
