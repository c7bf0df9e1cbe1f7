package httpheader

import (
	"bytes"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/syntax"
)

// CopyResponse copies the status and the end-to-end fields of an SSP's response to dst, an empty
// header. Lines have the form that Next reads. It drops hop-by-hop fields, the fields that
// Connection names, Content-Length (dst counts its own body), X-Adbuffer-*, and the field of the
// request id. Unless the policy passes them, it also drops Set-Cookie, Alt-Svc,
// Strict-Transport-Security, Clear-Site-Data and Proxy-*.
//
// Names keep their spelling and fields their order, except for fields that fasthttp stores
// separately. It writes Server, Content-Type and Content-Encoding first, at most one of each.
// Several lines of Content-Encoding become one list. The SSP's Date is next. No default
// Content-Type is added. The Date only survives in a server with NoDefaultDate. A response without
// one gets the current Date, as RFC 9110, section 6.6.1, requires of proxies.
//
// dst stores the first of the other fields, and all further ones inside its value; ResponseFields
// splits them. Otherwise fasthttp would keep two buffers for each field, with their largest size so
// far.
func (p *Policy) CopyResponse(dst *fasthttp.ResponseHeader, status int, lines []byte) {
	dst.SetStatusCode(status)
	dst.DisableNormalizing()
	dst.SetNoDefaultContentType(true)

	var named connectionOptions
	if !named.readConnection(lines) {
		lines = nil // no correct peer names so many fields: no field is known to be end-to-end
	}
	memory := blocks.Get().(*[]byte)
	block := (*memory)[:0]
	var date []byte
	for name, value, rest := syntax.CutField(lines); name != nil; name, value, rest = syntax.CutField(rest) {
		id := identify(name)
		switch {
		case requestKinds[id] == never,
			(id == nameGuarded || id == nameGuardedResponse) && !p.pass.has(name, &syntax.Lower),
			id == nameDate && date != nil,
			p.isRequestID(name),
			named.has(name):
			continue
		}
		switch {
		case syntax.ControlAt(name) < len(name): // the connection has already refused such names
		case id == nameDate:
			date = value
		case syntax.EqualFold(name, "content-type"):
			dst.SetContentTypeBytes(value)
		case syntax.EqualFold(name, "content-encoding"):
			if before := dst.ContentEncoding(); len(before) > 0 {
				value = slices.Concat(before, []byte(", "), value)
			}
			dst.SetContentEncodingBytes(value)
		case syntax.EqualFold(name, "server"):
			dst.SetServerBytes(value)
		default:
			block = syntax.AppendField(block, name, value)
		}
	}
	if date != nil {
		addStored(dst, dateName, date)
	}
	if len(block) > 0 {
		name, value, _ := bytes.Cut(block[:len(block)-len(lineEnd)], nameEnd)
		addStored(dst, name, value)
	}
	if date == nil {
		AddDate(dst)
	}
	if cap(block) <= maxKeptBlock {
		*memory = block
		blocks.Put(memory)
	}
}

// AppendTrailers appends to dst the trailer fields of an SSP that are forwarded to a client. Fields
// about the connection, the message's length or its content are not forwarded (RFC 9110, section
// 6.5.1), nor are fields that CopyResponse drops.
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
func (p *Policy) isRequestID(name []byte) bool {
	return len(name) == len(p.requestID) && is(name, p.plainRequestID)
}

var lineEnd, nameEnd = []byte("\r\n"), []byte(": ")

// blocks holds memory for the fields of a response.
var blocks = sync.Pool{New: func() any { return new([]byte) }}

const maxKeptBlock = 16 << 10

// ResponseFields returns the fields of h, which CopyResponse may have filled. They are valid as
// long as h does not change.
func ResponseFields(h *fasthttp.ResponseHeader) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for name, value := range h.All() {
			for {
				first, rest, more := bytes.Cut(value, lineEnd)
				if !yield(name, first) {
					return
				}
				if !more {
					break
				}
				name, value, _ = bytes.Cut(rest, nameEnd)
			}
		}
	}
}

// readConnection reads the Connection fields among lines. It returns false if they name too many
// fields. It runs before the first field is copied, since a later line may name that field. It only
// reads the beginning of each line.
func (c *connectionOptions) readConnection(lines []byte) bool {
	const name = "connection"
	for len(lines) > len(name) {
		if lines[len(name)] == ':' && is(lines[:len(name)], name) {
			_, value, _ := syntax.CutField(lines)
			if !c.add(value) {
				return false
			}
		}
		next := syntax.NextLine(lines, 0)
		if next == 0 {
			break
		}
		lines = lines[next:]
	}
	return true
}

// addStored adds a field to h unchanged. fasthttp's own setters ignore a Date ("managed
// automatically") and remove line ends from a value. So addStored adds a name and a value of
// blanks, and overwrites both in place: 44 ns, and no allocation.
func addStored(h *fasthttp.ResponseHeader, name, value []byte) {
	h.AddBytesKV(blank(len(name)), blank(len(value)))
	for n, v := range h.All() {
		if len(n) == len(name) && n[0] == ' ' {
			copy(n, name)
			copy(v, value)
			return
		}
	}
}

// blank returns n blanks, which must not be changed.
func blank(n int) []byte {
	if n > len(blanks) {
		return bytes.Repeat(blanks[:1], n)
	}
	return blanks[:n]
}

var (
	blanks   = bytes.Repeat([]byte{' '}, 16<<10)
	dateName = []byte("Date")
)

// AddDate adds the current Date to h, for adbuffer's own responses in a server with NoDefaultDate.
func AddDate(h *fasthttp.ResponseHeader) { addStored(h, dateName, now()) }

// now returns the current Date. It must not be changed.
func now() []byte {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &date{second: now.Unix(), text: fasthttp.AppendHTTPDate(nil, now)}
		lastDate.Store(d)
	}
	return d.text
}

// date is a second and its text in a Date field.
type date struct {
	second int64
	text   []byte
}

var lastDate atomic.Pointer[date]
