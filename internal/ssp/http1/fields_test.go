package http1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// The number of a response's fields is bounded, besides their bytes.
func TestResponseWithTooManyFieldsIsRefused(t *testing.T) {
	fields := func(n int) string { return strings.Repeat("a:\r\n", n) }
	const chunkedBody = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
	for name, c := range map[string]struct {
		response string
		fits     bool
	}{
		"at the limit":                   {"HTTP/1.1 200 OK\r\n" + fields(255) + "Content-Length: 1\r\n\r\nx", true},
		"one more":                       {"HTTP/1.1 200 OK\r\n" + fields(256) + "Content-Length: 1\r\n\r\nx", false},
		"one more, and no end":           {"HTTP/1.1 200 OK\r\n" + fields(257), false},
		"header and trailers at it":      {"HTTP/1.1 200 OK\r\n" + fields(155) + chunkedBody + fields(100) + "\r\n", true},
		"header and trailers over it":    {"HTTP/1.1 200 OK\r\n" + fields(155) + chunkedBody + fields(101) + "\r\n", false},
		"trailers alone over it":         {"HTTP/1.1 200 OK\r\n" + chunkedBody + fields(256), false},
		"a folded line is no field":      {"HTTP/1.1 200 OK\r\n" + fields(254) + "b: x\r\n y\r\n z\r\nContent-Length: 1\r\n\r\nx", true},
		"each 1xx counts for itself":     {strings.Repeat("HTTP/1.1 103 Early Hints\r\n"+fields(256)+"\r\n", 3) + "HTTP/1.1 200 OK\r\n" + fields(255) + "Content-Length: 1\r\n\r\nx", true},
		"a 1xx over it":                  {"HTTP/1.1 103 Early Hints\r\n" + fields(257) + "\r\n", false},
		"over it with bare LF line ends": {"HTTP/1.1 200 OK\n" + strings.Repeat("a:\n", 257), false},
	} {
		for _, k := range kinds {
			t.Run(fmt.Sprint(name, "/", k), func(t *testing.T) {
				conn, p, owner := k.dial(t, plain, testOptions())
				ex, done := ask(t, conn, p)
				p.send(c.response)
				err := wait(t, done)
				owner.awaitFreed(t, 1)
				if c.fits {
					wantResponse(t, err, ex, 200, "x")
					return
				}
				wantError(t, err, exchange.BadResponse, exchange.MaybeProcessed, false)
				const want = "the response has over 256 fields"
				testsupport.Equal(t, exchange.AsError(err).Detail, want, "the error says %q")
				wantReason(t, conn, exchange.ClosedError)
			})
		}
	}
}

// The parser continues where the previous read ended. A parser that starts again for each read needs
// half a minute for a head of 256 KB that arrives byte by byte.
func TestHeaderInManyPiecesIsParsedOnce(t *testing.T) {
	const size = 1 << 18
	for name, head := range map[string]string{
		"many fields": "HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", size/6) + "\r\n",
		"one field":   "HTTP/1.1 200 OK\r\na: " + strings.Repeat("b", size) + "\r\n\r\n",
		"bare LF":     "HTTP/1.1 200 OK\n" + strings.Repeat("a: b\n", size/5) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			all, lines := []byte(head), []byte(nil)
			parse := func(step int) {
				p := headParser{maxFields: size}
				lines = lines[:0]
				for n := step; ; n += step {
					var done int
					var err error
					if done, lines, err = p.parse(all[:min(n, len(all))], lines, true); err != nil {
						t.Fatal(err)
					}
					if done > 0 {
						testsupport.MustEqual(t, done, len(head), "a head of %d bytes")
						return
					}
				}
			}
			read := func(step int) time.Duration { return testsupport.ThreadTime(func() { parse(step) }) }
			whole := max(min(read(size*2), read(size*2), read(size*2)), time.Millisecond)
			testsupport.AtMost(t, read(1), 2000*whole, "%v byte by byte, %v at once", whole)
		})
	}
}
