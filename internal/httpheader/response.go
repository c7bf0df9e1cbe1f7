package httpheader

import (
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// CopyResponse copies an SSP's answer, its status and the end-to-end fields among its lines, to dst, the empty
// header of our answer. Lines are as Next reads them. Left behind are hop-by-hop fields and those that Connection names,
// Content-Length (dst counts its own body), X-Adbuffer-*, and, unless they are passed, Set-Cookie, Alt-Svc,
// Strict-Transport-Security, Clear-Site-Data and Proxy-*.
//
// Names keep their spelling and fields their order, but for those that fasthttp keeps apart: it writes Server,
// Content-Type and Content-Encoding first, Set-Cookie last, and has room for one of each of the former. No
// default Content-Type is added. The SSP's Date only survives in a server with NoDefaultDate; an answer
// without one gets ours, as RFC 9110, section 6.6.1, asks of proxies.
func (p *Policy) CopyResponse(dst *fasthttp.ResponseHeader, status int, lines []byte) {
	dst.SetStatusCode(status)
	dst.DisableNormalizing()
	dst.SetNoDefaultContentType(true)

	var named connectionOptions
	if !named.readConnection(lines) {
		lines = nil // no sane peer names so many fields: none is known to be end-to-end
	}
	dated := false
	for name, value, rest := Next(lines); name != nil; name, value, rest = Next(rest) {
		id := identify(name)
		switch {
		case requestKinds[id] == never,
			(id == nameGuarded || id == nameGuardedResponse) && !p.pass.has(name, &lower),
			id == nameDate && dated,
			named.has(name):
			continue
		}
		switch id {
		case nameDate:
			dated = true
			addDate(dst, value)
		case nameContentType:
			dst.SetContentTypeBytes(value) // as AddBytesKV would, for half its price
		default:
			dst.AddBytesKV(name, value)
		}
	}
	if !dated {
		AddDate(dst)
	}
}

// readConnection takes in the Connection fields among lines. It returns false if they name too many fields.
// It runs before the first field is copied, since a field may be named by a later line, and therefore only
// looks at how lines begin.
func (c *connectionOptions) readConnection(lines []byte) bool {
	const name = "connection"
	for len(lines) > len(name) {
		if lines[len(name)] == ':' && is(lines[:len(name)], name) {
			_, value, _ := Next(lines)
			if !c.add(value) {
				return false
			}
		}
		next := nextLine(lines, 0)
		if next == 0 {
			break
		}
		lines = lines[next:]
	}
	return true
}

// addDate adds a Date to h. fasthttp's own setters ignore it ("managed automatically"), so it goes in under
// another name of the same length, which is then put right where it is stored: 44 ns, and no allocation.
func addDate(h *fasthttp.ResponseHeader, value []byte) {
	const placeholder = "D~te"
	h.AddBytesV(placeholder, value)
	for name := range h.All() {
		if string(name) == placeholder {
			copy(name, "Date")
			return
		}
	}
}

// AddDate adds the current Date to h, for answers of our own in a server with NoDefaultDate.
func AddDate(h *fasthttp.ResponseHeader) {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &date{second: now.Unix(), text: fasthttp.AppendHTTPDate(nil, now)}
		lastDate.Store(d)
	}
	addDate(h, d.text)
}

// date is a second and how a Date field says it.
type date struct {
	second int64
	text   []byte
}

var lastDate atomic.Pointer[date]
