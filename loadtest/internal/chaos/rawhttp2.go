package chaos

import (
	"bufio"
	"bytes"
	"net"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawHTTP2 is the client side of an HTTP/2 connection. A hostile client writes its frames one by one.
type rawHTTP2 struct {
	*http2.Framer
	out   *bufio.Writer
	block bytes.Buffer
	enc   *hpack.Encoder
}

// newRawHTTP2 buffers the preface and the settings for c.
func newRawHTTP2(c net.Conn, settings ...http2.Setting) *rawHTTP2 {
	h := &rawHTTP2{out: bufio.NewWriter(c)}
	h.enc = hpack.NewEncoder(&h.block)
	_, _ = h.out.WriteString(http2.ClientPreface)
	h.Framer = http2.NewFramer(h.out, c)
	_ = h.WriteSettings(settings...)
	return h
}

// Open writes the header of a request. The header claims a body of length bytes. A negative length
// means a request without a body. more are further fields.
func (h *rawHTTP2) Open(id uint32, method, path string, length int, more ...[2]string) {
	h.block.Reset()
	fields := append([][2]string{{":method", method}, {":scheme", "https"}, {":authority", "a"}, {":path", path}},
		more...)
	if length >= 0 {
		fields = append(fields, [2]string{"content-length", strconv.Itoa(length)})
	}
	for _, f := range fields {
		_ = h.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block.Bytes(), EndHeaders: true,
		EndStream: length < 0})
}

// Flush sends the buffered bytes.
func (h *rawHTTP2) Flush() error { return h.out.Flush() }
