package http1

import (
	"bytes"
	"errors"
	"math"

	"adbuffer/internal/httpheader"
)

// framing is how the end of an answer's body is found. RFC 9112, section 6.3.
type framing uint8

const (
	noBody framing = iota
	fixedLength
	chunked
	untilClose
)

// head is what a status line and header fields say about the message and the
// connection.
type head struct {
	status        int
	http10        bool
	close         bool // Connection: close
	odd           bool // obs-fold, a bare LF, Content-Length beside Transfer-Encoding, a 204 that speaks of a body: readable, but do not reuse
	hasTE         bool
	contentLength int // -1 for none
}

// framing returns how the body of the answer ends, for a request that was, or
// was not, HEAD.
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

// statedLength is the Content-Length as it counts: -1 where there is none, or
// where it means nothing, beside a Transfer-Encoding or in a 204. RFC 9110,
// section 8.6, RFC 9112, section 6.3.
func (h *head) statedLength() int {
	if h.hasTE || h.status == 204 {
		return -1
	}
	return h.contentLength
}

// Faults of an answer's head. Their text never quotes what the peer sent.
var (
	errStatusLine     = errors.New("malformed status line")
	errVersion        = errors.New("neither HTTP/1.1 nor HTTP/1.0")
	errField          = errors.New("malformed header field")
	errFieldValue     = errors.New("control character in a header field")
	errFoldedFraming  = errors.New("folded framing field")
	errContentLength  = errors.New("invalid or repeated Content-Length")
	errTransferCoding = errors.New("a Transfer-Encoding other than one \"chunked\"")
	errInterimFlood   = errors.New("too many 1xx answers")
	errInterimBody    = errors.New("a 1xx answer that speaks of a body")
	errSwitching      = errors.New("101 without having been asked to upgrade")
	errChunk          = errors.New("malformed chunk")
	errTrailer        = errors.New("malformed or overlong trailer section")
	errHeadTooLarge   = errors.New("header section over its limit")
	errTooManyFields  = errors.New("too many header fields")
	errBodyTooLarge   = errors.New("body over its limit")
)

// parseStatusLine reads "HTTP/1.1 200 OK"; the reason phrase may be missing,
// with or without its space.
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
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return errStatusLine
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 || h.status > 599 || len(line) > 12 && line[12] != ' ' || !validValue(line[12:]) {
		return errStatusLine
	}
	return nil
}

// cutField splits a field line. The value is trimmed.
func cutField(line []byte) (name, value []byte, err error) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return nil, nil, errField
	}
	for _, c := range line[:colon] {
		if !tokenByte[c] {
			return nil, nil, errField
		}
	}
	value = line[colon+1:]
	if !validValue(value) {
		return nil, nil, errFieldValue
	}
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for len(value) > 0 && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
		value = value[:len(value)-1]
	}
	return line[:colon], value, nil
}

// note takes what a field says about framing and the connection, and reports
// whether it said something.
func (h *head) note(name, value []byte) (bool, error) {
	switch len(name) {
	case len("Connection"):
		if httpheader.EqualFold(name, "connection") {
			h.close = h.close || hasToken(value, "close")
			return true, nil
		}
	case len("Content-Length"):
		if httpheader.EqualFold(name, "content-length") {
			n, ok := parseDecimal(value)
			if !ok || h.contentLength >= 0 {
				return true, errContentLength
			}
			h.contentLength = n
			h.odd = h.odd || h.hasTE
			return true, nil
		}
	case len("Transfer-Encoding"):
		if httpheader.EqualFold(name, "transfer-encoding") {
			if h.hasTE || h.http10 || !httpheader.EqualFold(value, "chunked") {
				return true, errTransferCoding
			}
			h.hasTE = true
			h.odd = h.odd || h.contentLength >= 0
			return true, nil
		}
	}
	return false, nil
}

// parseDecimal reads digits. What does not fit into an int, and so is over every
// limit that we have, is math.MaxInt.
func parseDecimal(v []byte) (int, bool) {
	if len(v) == 0 {
		return 0, false
	}
	n := 0
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		if d := int(c - '0'); n > (math.MaxInt-d)/10 {
			n = math.MaxInt
		} else {
			n = n*10 + d
		}
	}
	return n, true
}

// hasToken reports whether the comma-separated list v has the lower-case token
// t. RFC 9110, section 5.6.1.
func hasToken(v []byte, t string) bool {
	for len(v) > 0 {
		item := v
		if i := bytes.IndexByte(v, ','); i >= 0 {
			item, v = v[:i], v[i+1:]
		} else {
			v = nil
		}
		if httpheader.EqualFold(bytes.Trim(item, " \t"), t) {
			return true
		}
	}
	return false
}

// validValue reports whether v has no control character but HTAB. RFC 9110,
// section 5.5.
func validValue(v []byte) bool {
	for _, c := range v {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// tokenByte are the bytes of a token. RFC 9110, section 5.6.2.
var tokenByte = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()
