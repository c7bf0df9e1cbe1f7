package http1

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/socket"
)

// BenchmarkHead reads a head that arrives whole, and one that arrives with the start of another
// request.
func BenchmarkHead(b *testing.B) {
	head := "GET /fillbuffer?imp=1 HTTP/1.1\r\nHost: ads.example\r\n" + strings.Repeat("X-Field-Of-Usual-Size: of a usual value\r\n", 11) + "\r\n"
	for name, message := range map[string]string{"Whole": head, "Pipelined": head + "GET"} {
		b.Run(name, func(b *testing.B) {
			s := New(nil, Options{MaxHeaderBytes: 4096}, zap.NewNop())
			c, f, buf := &Conn{server: s}, header.RequestFields{}, make([]byte, s.http.ReadBufferSize)
			m := &messageConn{message: bytes.NewReader(nil)}
			c.socket = socket.New(m)
			b.ReportAllocs()
			for b.Loop() {
				m.message.Reset([]byte(message))
				_, err := c.readHead(buf)
				testsupport.MustTrue(b, err == nil, "%v", err)
				_, _, refusal := c.Head(&f)
				testsupport.MustTrue(b, refusal == nil, "%v", refusal)
				c.early.release(s)
			}
		})
	}
}
