package http1

import (
	"strconv"

	"adbuffer/internal/upstream"
)

// appendMessageHead appends r's message head as HTTP/1.1: request line, Host, the end-to-end
// fields, Content-Length, and the empty line. RFC 9112, section 3.
func appendMessageHead(dst []byte, r *upstream.Request) []byte {
	dst = append(dst, r.Method.String()...)
	dst = append(dst, ' ')
	dst = append(dst, r.Target...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, r.Authority...)
	dst = append(dst, '\r', '\n')
	dst = append(dst, r.Fields...)
	if len(r.Body) > 0 || r.Method == upstream.POST {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(len(r.Body)), 10)
		dst = append(dst, '\r', '\n')
	}
	return append(dst, '\r', '\n')
}
