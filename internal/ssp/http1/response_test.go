//go:build !race

package http1

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// The limits of these tests are small, so that inputs reach them.
const (
	testMaxHead = 512
	testMaxBody = 2000
)

// outcome holds the result of reading a response.
type outcome struct {
	status         int
	fields         string
	length         int
	body           string
	err            string
	end            int  // bytes of the input that belong to the response
	notReusable    bool // see head
	announcesClose bool // the response says that the connection closes after it
	closes         bool // it has Connection: close
}

// broken is an input that interrupts reads, like a socket: it returns an error after each piece.
// The caller then repeats the read. next returns the sizes of the pieces.
type broken struct {
	input     []byte
	next      func() int
	interrupt error // between pieces; nil for none
	due       bool
}

func (s *broken) Read(p []byte) (int, error) {
	if len(s.input) == 0 {
		return 0, io.EOF
	}
	if s.due {
		s.due = false
		return 0, s.interrupt
	}
	n := copy(p, s.input[:min(len(s.input), max(1, s.next()))])
	s.input = s.input[n:]
	s.due = s.interrupt != nil
	return n, nil
}

// readWay is a way to read a response.
type readWay struct {
	buffer    int
	next      func() int // sizes of the pieces in which the response arrives
	interrupt error      // error of the reads between pieces, which are repeated
	discard   int        // number of interruptions after which the response is discarded; -1 for never
}

// readResponse reads the response to method at the start of input.
func readResponse(input []byte, method exchange.Method, h readWay) outcome {
	src := &broken{input: input, next: h.next, interrupt: h.interrupt}
	br := bufio.NewReaderSize(src, h.buffer)
	a := (&Options{MaxResponseHeaderBytes: testMaxHead, MaxResponseBytes: testMaxBody}).newResponseReader()
	a.start(method)
	ex := exchange.AcquireExchange()
	for n := 0; ; n++ {
		a.discard = a.discard || n == h.discard
		kept := ex
		if a.discard {
			kept = nil // later reads must not write to it
		}
		err := a.read(br, kept)
		if h.interrupt != nil && errors.Is(err, h.interrupt) {
			continue
		}
		o := outcome{
			status: ex.Response.Status, fields: string(ex.Response.Fields), length: ex.Response.ContentLength, body: string(ex.Response.Body),
			end: len(input) - len(src.input) - br.Buffered(), notReusable: a.header.notReusable, announcesClose: a.announcesClose(), closes: a.header.close,
		}
		if err != nil {
			// The contents of a failed response are not compared.
			o = outcome{err: err.Error()}
		}
		return o
	}
}

// whole reads a response that arrives in one piece.
func whole() readWay {
	return readWay{buffer: testMaxHead, next: func() int { return 1 << 20 }, discard: -1}
}

// readWays are the ways in which the two kinds of connections read. An exclusive connection has a
// buffer with the size of a message head, and a deadline interrupts its reads. A pipelined one has
// a large buffer, and an empty buffer interrupts its reads.
func readWays(next func() int) map[string]readWay {
	return map[string]readWay{
		"blocking":    {buffer: testMaxHead, next: next, discard: -1},
		"interrupted": {buffer: testMaxHead, next: next, interrupt: os.ErrDeadlineExceeded, discard: -1},
		"pipelined":   {buffer: 64 << 10, next: next, interrupt: errNothingBuffered, discard: -1},
	}
}

// checkSplits checks that the response is the same in any pieces.
func checkSplits(tb testing.TB, input []byte, method exchange.Method, next func() int) outcome {
	tb.Helper()
	want := readResponse(input, method, whole())
	for name, h := range readWays(next) {
		testsupport.MustEqual(tb, readResponse(input, method, h), want, "%[2]s, %[3]v %[4]q:\n got %+[1]v", name, method, input)
	}
	// If the remaining response is discarded, its end and its violations are the same.
	h := readWay{buffer: testMaxHead, next: next, interrupt: os.ErrDeadlineExceeded, discard: max(0, next()%5)}
	got := readResponse(input, method, h)
	if got.err != want.err || got.end != want.end || got.notReusable != want.notReusable || got.announcesClose != want.announcesClose {
		tb.Fatalf("discarded, %v %q:\n got %+v\nwant %+v", method, input, got, want)
	}
	return want
}

// goodResponses are valid responses and their bodies, without bytes after them.
var goodResponses = []struct {
	name, head, rest, body string
	status                 int
	method                 exchange.Method
	theLast, odd           bool
}{
	{name: "fixed length", head: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n", rest: "hello", body: "hello", status: 200},
	{name: "empty", head: "HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", status: 200},
	{name: "any text as the reason", head: "HTTP/1.1 299 \x80\xff\tx\r\nContent-Length: 0\r\n\r\n", status: 299},
	{name: "any token as a name", head: "HTTP/1.1 200 OK\r\n!#$%&'*+-.^_`|~09azAZ:\t y \t\r\nX: \x80\xff \t\r\nContent-Length: 0\r\n\r\n", status: 200},
	{name: "no reason", head: "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200},
	{name: "empty reason", head: "HTTP/1.1 599 \r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 599},
	{name: "length with zeros", head: "HTTP/1.1 200 OK\r\nContent-Length: \t0005 \r\n\r\n", rest: "hello", body: "hello", status: 200},
	{name: "chunked", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", rest: "5\r\nhello\r\n06;a=\"b\"\r\n world\r\n0\r\n\r\n", body: "hello world", status: 200},
	{name: "trailer", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", rest: "A\r\n0123456789\r\n000\r\nX: y\r\nZ:\r\n\r\n", body: "0123456789", status: 200},
	{name: "extensions", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", rest: "1;a=\"b;c\"\r\nx\r\n1 \t;a\r\ny\r\n0;z\r\nContent-Length: 9\r\n\r\n", body: "xy", status: 200},
	{name: "interim of length 0", head: "HTTP/1.1 103 x\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200},
	{name: "no chunk", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", rest: "0\r\n\r\n", status: 200},
	{name: "HEAD", head: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", status: 200, method: exchange.HEAD},
	{name: "HEAD of a large one", head: "HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n", status: 200, method: exchange.HEAD},
	{name: "HEAD chunked", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", status: 200, method: exchange.HEAD},
	{name: "HEAD without length", head: "HTTP/1.1 200 OK\r\n\r\n", status: 200, method: exchange.HEAD},
	{name: "204", head: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
	{name: "204 of length 0", head: "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", status: 204},
	{name: "204 with a length", head: "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", status: 204, odd: true},
	{name: "204 chunked", head: "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", status: 204, odd: true},
	{name: "304", head: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status: 304},
	{name: "interim", head: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 404},
	{name: "interim length", head: "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "interim chunked", head: "HTTP/1.1 103 x\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "interim obs-fold", head: "HTTP/1.1 103 x\r\nLink: y\r\n z\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "interim bare LF", head: "HTTP/1.1 100 x\n\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "interim HTTP/1.0", head: "HTTP/1.0 100 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "interim close", head: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\nConnection: close\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 404, odd: true},
	{name: "connection close", head: "HTTP/1.1 200 OK\r\nConnection: x,close ,y\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, theLast: true},
	{name: "HTTP/1.0", head: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, theLast: true},
	{name: "chunked and length", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", rest: "1\r\nx\r\n0\r\n\r\n", body: "x", status: 200, odd: true},
	{name: "length and chunked", head: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", rest: "1\r\nx\r\n0\r\n\r\n", body: "x", status: 200, odd: true},
	{name: "bare LF", head: "HTTP/1.1 200 OK\nX: y\nContent-Length: 1\n\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "one bare LF", head: "HTTP/1.1 200 OK\r\nX: y\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "obs-fold", head: "HTTP/1.1 200 OK\r\nX: y \r\n \t z\r\n\t\r\nContent-Length: 1\r\n\r\n", rest: "x", body: "x", status: 200, odd: true},
	{name: "largest body", head: "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", rest: strings.Repeat("x", testMaxBody), body: strings.Repeat("x", testMaxBody), status: 200},
	{name: "largest chunked body", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", rest: "7cf\r\n" + strings.Repeat("x", testMaxBody-1) + "\r\n1\r\nx\r\n0\r\n\r\n", body: strings.Repeat("x", testMaxBody), status: 200},
	{name: "largest head", head: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: " + strings.Repeat("x", testMaxHead-45) + "\r\n\r\n", rest: "x", body: "x", status: 200},
	{name: "largest trailer", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", rest: "0\r\nX: " + strings.Repeat("x", testMaxHead-7) + "\r\n\r\n", status: 200},
}

func TestResponseIsTheSameInAnyPieces(t *testing.T) {
	testsupport.Long(t)
	for _, c := range goodResponses {
		t.Run(c.name, func(t *testing.T) {
			response := c.head + c.rest
			for _, behind := range []string{"", "HTTP/1.1 200 OK\r\n\r\n"} {
				input := []byte(response + behind)
				// The response arrives in two pieces, cut at each byte, and then in pieces of one
				// size.
				for cut := range input {
					got := checkSplits(t, input, c.method, sequence(cut, len(input)))
					testsupport.MustTrue(t, got.err == "" && got.status == c.status && got.body == c.body && got.notReusable == c.odd && got.announcesClose == c.theLast, "%+v", got)
					testsupport.MustEqual(t, got.end, len(response), "the response ends at %d")
				}
				for size := 1; size < 20; size++ {
					checkSplits(t, input, c.method, func() int { return size })
				}
			}
		})
	}
}

// sequence returns the given sizes, and then repeats the last one.
func sequence(sizes ...int) func() int {
	return func() int {
		n := sizes[0]
		if len(sizes) > 1 {
			sizes = sizes[1:]
		}
		return n
	}
}

// A response that is cut at any byte is an error, unless it ends with the connection.
func TestTruncatedResponsesAreErrors(t *testing.T) {
	for _, c := range goodResponses {
		response := []byte(c.head + c.rest)
		for cut := range response {
			got := checkSplits(t, response[:cut], c.method, sequence(cut/2, cut))
			testsupport.True(t, got.err != "", "%s: %d of %d bytes were taken as the response %+v", c.name, cut, len(response), got)
		}
	}
}

func TestBodyWithoutALengthEndsWithTheConnection(t *testing.T) {
	for _, head := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\nX: y\r\n\r\n"} {
		for _, body := range []string{"", "hello", strings.Repeat("x", testMaxBody)} {
			for cut := range len(head) + min(len(body), 100) {
				got := checkSplits(t, []byte(head+body), exchange.GET, sequence(cut, 7, 1000))
				testsupport.MustTrue(t, got.err == "" && got.body == body && got.length == -1 && got.announcesClose, "%+v", got)
			}
		}
	}
}

func TestLengthIsReportedWhereItCounts(t *testing.T) {
	for response, want := range map[string]int{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc":                                               3,
		"HTTP/1.1 200 OK\r\n\r\n":                                                                       -1,
		"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n":                                          -1,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n": -1,
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5000000000\r\n\r\n":                               5_000_000_000,
	} {
		got := readResponse([]byte(response), exchange.GET, whole())
		testsupport.True(t, got.err == "" && got.length == want, "%q: %+v, want length %d", response, got, want)
	}
}

func TestFieldsAreNormalizedLines(t *testing.T) {
	for response, want := range map[string]string{
		"HTTP/1.1 204 x\r\nA: b\r\nc:D  \r\nE:\r\n\r\n":                       "A: b\r\nc:D  \r\nE:\r\n",
		"HTTP/1.1 204 x\r\n\r\n":                                              "",
		"HTTP/1.1 204 x\nA: b\nC: d\n\n":                                      "A: b\r\nC: d\r\n",
		"HTTP/1.1 204 x\r\nA: b\r\nC: d\n\r\n":                                "A: b\r\nC: d\r\n",
		"HTTP/1.1 204 x\r\nA: b\r\n  c\r\n\td \r\nE: f\r\n\r\n":               "A: b c d\r\nE: f\r\n",
		"HTTP/1.1 204 x\r\nA:\r\n b\n c\r\nE: f\r\n g\r\n\r\n":                "A: b c\r\nE: f g\r\n",
		"HTTP/1.1 103 x\r\nEarly: hint\r\n\r\nHTTP/1.1 204 x\r\nA: b\r\n\r\n": "A: b\r\n",
	} {
		got := readResponse([]byte(response), exchange.GET, whole())
		testsupport.True(t, got.err == "" && got.fields == want, "%q: %+v, want fields %q", response, got, want)
	}
}
