package http1

import (
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/upstream"
)

// Bytes behind an answer may have been decrypted with it: then they are neither
// in our buffer nor in the socket. They were once taken as the start of the
// next answer, where max_response_header_bytes was smaller than a TLS record.
func TestBytesThatTLSHasDecryptedBehindAnAnswerAreFound(t *testing.T) {
	for _, buffer := range []int{512, 4096, 15000} {
		t.Run(strconv.Itoa(buffer), func(t *testing.T) {
			opts := testOptions()
			opts.MaxResponseHeaderBytes = buffer
			conn, p, owner := dial(t, overTLS, opts)
			ex := newExchange(t)
			done := start(conn, ex)
			p.request()
			// The answer ends just where the buffer that it is read into ends.
			head := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(buffer/2) + "\r\nX-Padding: "
			body := strings.Repeat("b", buffer/2)
			head += strings.Repeat("p", buffer-len(head)-len("\r\n\r\n")-len(body)) + "\r\n\r\n"
			p.send(head + body + answer("evil")) // one record
			wantAnswer(t, wait(t, done), ex, 200, body)
			owner.awaitFreed(t, 1)
			if conn.Idle() {
				t.Fatal("a connection with bytes behind an answer is lent again")
			}
			wantReason(t, conn, upstream.ClosedUnsolicited)
		})
	}
}
