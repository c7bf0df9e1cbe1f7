package http1

import (
	"bytes"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"
)

// Response is the response to a request.
type Response struct {
	Status int
	Fields []byte // lines, without Content-Length and fields about the connection
	Body   []byte
	Length int  // the Content-Length of a response to HEAD; -1 for the length of Body
	Close  bool // the connection ends with this response
	// Pause is how long the connection is not read after this response. Over HTTP/2 it is divided by the
	// number of open streams, so that a client gets the same number of requests read over either.
	Pause time.Duration
	// At is when the response was made; zero if that is unknown. It saves a reading of the clock, 40 ns.
	At time.Time
}

// handle is the fasthttp handler: requests of HTTP/1.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := ctx.Conn().(*Conn)
	c.life.requests.Add(1)
	r, w := s.handler.Handle(c)
	c.responding = r
	w.Close = !c.endRequest() || w.Close
	c.pause.add(w.Pause)
	c.deadlines.respondedAt = w.At
	w.writeTo(&ctx.Response)
}

// writeTo copies w to an empty response of fasthttp's. The body is not copied: it is valid until the
// request is released.
func (w *Response) writeTo(to *fasthttp.Response) {
	h := &to.Header
	h.SetStatusCode(w.Status)
	if w.Close {
		h.SetConnectionClose()
	}
	if w.Length >= 0 {
		h.SetContentLength(w.Length)
	}
	if len(w.Fields) > 0 {
		setFields(h, w.Fields[:len(w.Fields)-len("\r\n")])
	}
	if len(w.Body) > 0 {
		to.SetBodyRaw(w.Body)
	}
}

// setFields adds all fields to h as a single field. Its name is the name of the first field, and its value has
// the other lines too. Otherwise fasthttp would keep two buffers for each field, with their largest
// size so far. fasthttp's setters also ignore a Date, and store some fields elsewhere, at most once.
//
// The setters remove line ends from a value. So setFields adds a name and a value of blanks, and
// overwrites both in place: 44 ns, and no allocation.
func setFields(h *fasthttp.ResponseHeader, lines []byte) {
	name, value, _ := bytes.Cut(lines, nameEnd)
	h.AddBytesKV(blankText(len(name)), blankText(len(value)))
	for n, v := range h.All() {
		if len(n) == len(name) && n[0] == ' ' {
			copy(n, name)
			copy(v, value)
			return
		}
	}
}

// blankText returns n blanks, which must not be changed.
func blankText(n int) []byte {
	if n > len(blanks) {
		return bytes.Repeat(blanks[:1], n)
	}
	return blanks[:n]
}

var nameEnd, blanks = []byte(": "), bytes.Repeat([]byte{' '}, 16<<10)

// last returns the bytes of w for a connection that closes with it.
func (w *Response) last() []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\n%sConnection: close\r\n\r\n%s",
		w.Status, fasthttp.StatusMessage(w.Status), len(w.Body), w.Fields, w.Body)
}
