package http1

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"adbuffer/internal/wire/syntax"
)

// framing says how the end of a response's body is found. RFC 9112, section 6.3.
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
	// notReusable says that the response is readable, but the connection must be closed. Causes are obs-fold, a bare
	// LF, Content-Length beside Transfer-Encoding, and a 1xx or 204 that announces a body. A 1xx response with such a
	// cause, or with Connection: close, sets notReusable for the response that follows it.
	notReusable   bool
	hasTE         bool
	contentLength int           // -1 for none
	idleLimit     time.Duration // see exchange.Conn.IdleLimit
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
	errInterimFlood   = fmt.Errorf("more than %d 1xx responses", maxInterim)
	errSwitching      = errors.New("101 although no upgrade was requested")
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

// noteField records what a field says about framing or the connection. It reports whether the field is about framing, or is
// Connection.
func (h *head) noteField(name, value []byte) (bool, error) {
	switch len(name) {
	case len("Connection"):
		if syntax.EqualFold(name, "connection") {
			h.close = h.close || syntax.HasToken(value, "close")
			return true, nil
		}
		if syntax.EqualFold(name, "keep-alive") { // the name has the same length as Connection
			h.noteKeepAlive(value)
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

// noteKeepAlive reads the timeout, in seconds, from value, a field Keep-Alive, and lowers idleLimit to that timeout
// minus a margin: a tenth of it, and at least half a second. A request that is sent later could cross with the SSP's
// close. Everything else in value is ignored.
func (h *head) noteKeepAlive(value []byte) {
	for parameter := range syntax.Elements(value) {
		name, number, _ := bytes.Cut(parameter, []byte("="))
		if !syntax.EqualFold(syntax.Trim(name), "timeout") {
			continue
		}
		if seconds, ok := syntax.ParseNumber(syntax.Trim(number), maxKeepAlive); ok {
			timeout := time.Duration(seconds) * time.Second
			h.idleLimit = min(h.idleLimit, timeout-timeout/10, timeout-time.Second/2)
		}
	}
}

// maxKeepAlive is the longest timeout in seconds that noteKeepAlive distinguishes. It is longer than any connection
// is kept idle.
const maxKeepAlive = 1 << 30
