package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"adbuffer/internal/httpsyntax"
	"adbuffer/internal/upstream"

	"github.com/valyala/fasthttp"
)

// checkStream is check for a request of HTTP/2. Its fields are written down in
// HTTP/1.1's form, and checked and classified as those of a request of HTTP/1
// are. Nothing may read differently afterwards: a CR or LF in a name or value
// would make fields that the client never sent, or another request. The server
// of HTTP/2 lets none through; here, where it would matter, it is made sure once
// more.
func (r *request) checkStream(req *http.Request) *fault {
	r.fields.HTTP10, r.fields.HTTP2 = false, true
	if req.RequestURI != "*" && !strings.HasPrefix(req.RequestURI, "/") {
		return malformed("the path does not begin with a slash")
	}
	n, f := r.writeHead(req)
	if f != nil {
		return f
	}
	if err := r.fields.Scan(r.block); err != nil {
		return headFault(err)
	}
	if len(r.fields.Fields()) != n || r.fields.Chunked() {
		return malformed("the header fields do not read as they were sent")
	}
	r.lookup.Host, r.lookup.Fields = r.fields.Host(), &r.fields
	// Without Content-Length the body ends with the stream. The server of HTTP/2
	// holds one with Content-Length to that.
	if req.ContentLength != 0 {
		r.source = req.Body
	}
	if r.source == nil && r.fields.ContentLength() > 0 {
		return malformed("the stream ended before the body that Content-Length promises")
	}
	if f := r.checkLine([]byte(req.Method), []byte(req.RequestURI)); f != nil {
		return f
	}
	// Whether a body of no stated length has a byte is known when one has come.
	if r.source != nil && r.ssp.Method != upstream.POST && r.fields.ContentLength() > 0 {
		return bodyNotAllowed()
	}
	return nil
}

// writeHead writes the fields to r.block, Host first and the others by name: in
// which order names came, net/http does not tell, and RFC 9110, section 5.3,
// does not care. It returns how many there are.
func (r *request) writeHead(req *http.Request) (n int, f *fault) {
	r.block, r.names = r.block[:0], r.names[:0]
	size := len(req.Method) + len(req.RequestURI) + len("  HTTP/1.1\r\n\r\n") // as long as it would be over HTTP/1.1
	if req.Host != "" {
		size += len("Host: \r\n") + len(req.Host)
		n++
	}
	for name, values := range req.Header {
		r.names = append(r.names, name)
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
			n++
		}
	}
	switch {
	case size > r.opts.MaxHeaderBytes:
		return 0, &fault{
			outcome: upstream.TooLarge, status: fasthttp.StatusRequestHeaderFieldsTooLarge,
			detail: fmt.Sprintf("the head is over %d bytes; see server.max_header_bytes", r.opts.MaxHeaderBytes),
		}
	case !httpsyntax.IsTrimmedValue([]byte(req.Host)):
		return 0, malformed("the authority has a byte that it must not have")
	}
	if req.Host != "" {
		r.block = httpsyntax.AppendField(r.block, []byte("Host"), []byte(req.Host))
	}
	slices.Sort(r.names)
	for _, name := range r.names {
		if strings.EqualFold(name, "Host") || !httpsyntax.IsToken([]byte(name)) || httpsyntax.IsConnectionSpecific([]byte(name)) {
			return 0, malformed("a field has a name that it must not have in HTTP/2")
		}
		for _, v := range req.Header[name] {
			if !httpsyntax.IsTrimmedValue([]byte(v)) {
				return 0, malformed("a field has a value that it must not have in HTTP/2")
			}
			r.block = httpsyntax.AppendField(r.block, []byte(name), []byte(v))
		}
	}
	r.block = append(r.block, "\r\n"...)
	return n, nil
}
