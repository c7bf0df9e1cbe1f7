package header

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/syntax"
)

// AppendResponse appends to dst a "Name: value\r\n" line for every end-to-end field of an SSP's
// response. Lines have the form that syntax.CutField reads. It drops hop-by-hop fields, the fields
// that Connection names, Content-Length (the client's connection counts its own body),
// X-Adbuffer-*, and the field of the request id. Unless the policy passes them, it also drops
// Set-Cookie, Alt-Svc, Strict-Transport-Security, Clear-Site-Data and Proxy-*. If the Connection fields
// name more than maxOptions fields, it drops all fields.
//
// Names keep their spelling and fields their order. Of several lines with Server, Content-Type or
// Date, only the first crosses. A response without a Date gets the time at which it was received, as
// RFC 9110, section 6.6.1, requires of proxies.
func (p *Policy) AppendResponse(dst, lines []byte, received time.Time) []byte {
	var named connectionOptions
	knowsAllNamed := false             // named has the options of all Connection fields
	var date, contentType, server bool // whether such a field has been seen
	start := len(dst)
	for name, value, rest := syntax.CutField(lines); name != nil; name, value, rest = syntax.CutField(rest) {
		var lower [longestName]byte
		n := fold(&lower, name)
		id := idOf(&lower, n)
		switch {
		case n < len(name): // the connection has already refused such names
			continue
		case id == nameConnection && !knowsAllNamed && !isCommonOption(value):
			// The Connection field may name fields that came before it, so all lines are read again.
			knowsAllNamed = true
			if !named.readConnection(lines) {
				lines = nil
			}
			dst, rest, date, contentType, server = dst[:start], lines, false, false, false
			continue
		case id.neverForwarded(),
			(id == nameGuarded || id == nameGuardedResponse) && !p.passes(name),
			p.isRequestID(name),
			named.has(name),
			id == nameDate && isRepeated(&date),
			id == nameContentType && syntax.EqualFold(name, "content-type") && isRepeated(&contentType),
			syntax.EqualFold(name, "server") && isRepeated(&server):
			continue
		}
		dst = syntax.AppendField(dst, name, value)
	}
	if !date {
		dst = AppendDate(dst, received)
	}
	return dst
}

// isRepeated returns *seen, and sets it: it reports whether a field of this name has been seen before.
func isRepeated(seen *bool) bool {
	before := *seen
	*seen = true
	return before
}

// AppendTrailers appends to dst the trailer fields of an SSP that are forwarded to a client. Fields
// about the connection, the message's length or its content are not forwarded (RFC 9110, section
// 6.5.1), nor are fields that AppendResponse drops and fields that it forwards only if a policy passes them.
func (p *Policy) AppendTrailers(dst, lines []byte) []byte {
	for name, value, rest := syntax.CutField(lines); name != nil; name, value, rest = syntax.CutField(rest) {
		if id := identify(name); (id == unknownName || id == nameUserAgent) && !p.isRequestID(name) {
			dst = syntax.AppendField(dst, name, value)
		}
	}
	return dst
}

// isRequestID reports whether a field of an SSP is called like the field for request ids, in any case
// and with '_' read as '-'.
func (p *Policy) isRequestID(name []byte) bool { return sameName(name, p.requestID) }

// readConnection reads the Connection fields among lines. It returns false if they name too many
// fields.
func (c *connectionOptions) readConnection(lines []byte) bool {
	for name, value := range syntax.Fields(lines) {
		if identify(name) == nameConnection && !c.add(value) {
			return false
		}
	}
	return true
}

var dateName = []byte("Date")

// AppendDate appends the line Date with the time now to dst.
func AppendDate(dst []byte, now time.Time) []byte {
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &date{second: now.Unix(), text: now.UTC().AppendFormat(nil, "Mon, 02 Jan 2006 15:04:05 GMT")}
		lastDate.Store(d)
	}
	return syntax.AppendField(dst, dateName, d.text)
}

// date is a second and its text in a Date field.
type date struct {
	second int64
	text   []byte
}

var lastDate atomic.Pointer[date]
