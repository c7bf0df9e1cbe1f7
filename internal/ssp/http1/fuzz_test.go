//go:build !race

package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// parseHead parses the message head at the start of b.
func parseHead(b []byte, h *head, lines []byte) (int, []byte, error) {
	p := headParser{maxFields: 1 << 20}
	n, lines, err := p.parse(b, lines, true)
	*h = p.head
	return n, lines, err
}

// checkFields checks that lines keep the promises of exchange.Response.
func checkFields(tb testing.TB, fields string) {
	tb.Helper()
	var h head
	again := []byte("HTTP/1.1 200 OK\r\n" + fields + "\r\n")
	n, out, err := parseHead(again, &h, nil)
	testsupport.MustTrue(tb, err == nil && n == len(again) && string(out) == fields, "fields %q, parsed again: %d of %d bytes, %q, %v", fields, n, len(again), out, err)
	for line := range strings.SplitAfterSeq(fields, "\n") {
		if line != "" && (!strings.HasSuffix(line, "\r\n") || strings.ContainsAny(line[:len(line)-2], "\r\n\x00") || strings.IndexByte(line, ':') <= 0) {
			tb.Fatalf("line %q of %q", line, fields)
		}
	}
}

// checkOracle compares the result with net/http's, for responses that adbuffer accepts. net/http
// accepts more.
func checkOracle(tb testing.TB, input []byte, method exchange.Method, got outcome) {
	tb.Helper()
	src := bytes.NewReader(input)
	br := bufio.NewReader(src)
	var resp *http.Response
	for {
		var err error
		resp, err = http.ReadResponse(br, &http.Request{Method: method.String()})
		if err != nil {
			return
		}
		if resp.StatusCode >= 200 {
			break
		}
		if resp.ContentLength > 0 || len(resp.TransferEncoding) > 0 {
			return
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	testsupport.MustTrue(tb, got.status == resp.StatusCode && got.body == string(body), "%v %q: %+v, net/http has %d %q", method, input, got, resp.StatusCode, body)
	end := len(input) - src.Len() - br.Buffered()
	testsupport.MustTrue(tb, got.end == end, "%v %q: ends at %d, for net/http at %d", method, input, got.end, end)
	var ours, theirs []string
	for line := range strings.SplitSeq(got.fields, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			ours = append(ours, http.CanonicalHeaderKey(name)+":"+strings.Join(strings.Fields(value), " "))
		}
	}
	for name, values := range resp.Header {
		for _, v := range values {
			theirs = append(theirs, name+":"+strings.Join(strings.Fields(v), " "))
		}
	}
	if len(resp.TransferEncoding) > 0 { // net/http removes these fields
		ours = slices.DeleteFunc(ours, func(f string) bool {
			return strings.HasPrefix(f, "Transfer-Encoding:") || strings.HasPrefix(f, "Content-Length:")
		})
		theirs = slices.DeleteFunc(theirs, func(f string) bool { return strings.HasPrefix(f, "Content-Length:") })
	}
	ignore := func(f string) bool { return strings.HasPrefix(f, "Trailer:") || strings.HasPrefix(f, "Connection:") }
	ours, theirs = slices.DeleteFunc(ours, ignore), slices.DeleteFunc(theirs, ignore)
	slices.Sort(ours)
	slices.Sort(theirs)
	testsupport.MustTrue(tb, slices.Equal(ours, theirs), "%v %q: fields %q, net/http has %q", method, input, ours, theirs)
}

func checkResponse(tb testing.TB, input []byte, method exchange.Method, next func() int) outcome {
	tb.Helper()
	got := checkSplits(tb, input, method, next)
	checkReference(tb, input, method, got)
	if got.err != "" {
		return got
	}
	checkFields(tb, got.fields)
	testsupport.MustTrue(tb, len(got.body) <= testMaxBody && got.status >= 200 && got.status <= 599, "%q: %+v", input, got)
	if got.length >= 0 && got.length != len(got.body) && method != exchange.HEAD && got.status != 304 {
		tb.Fatalf("%q: length %d, body of %d", input, got.length, len(got.body))
	}
	checkOracle(tb, input, method, got)
	// Bytes after the response do not change the result.
	if !got.announcesClose || got.end < len(input) {
		again := readResponse(append(input[:got.end:got.end], "HTTP/1.1 200 OK\r\nX: y\r\n\r\n"...), method, whole())
		testsupport.MustTrue(tb, again == got, "%q: %+v, with something behind it %+v", input, got, again)
	}
	return got
}

func TestResponsesAgreeWithNetHTTP(t *testing.T) {
	for _, c := range goodResponses {
		checkResponse(t, []byte(c.head+c.rest+"HTTP/1.1"), c.method, func() int { return 11 })
	}
}

func FuzzResponse(f *testing.F) {
	for _, c := range goodResponses {
		f.Add([]byte(c.head+c.rest), c.method == exchange.HEAD, []byte{1, 7})
	}
	for _, c := range badResponses {
		f.Add([]byte(c.response), false, []byte{100, 3, 1})
	}
	f.Fuzz(func(t *testing.T, input []byte, toHEAD bool, sizes []byte) {
		method := exchange.GET
		if toHEAD {
			method = exchange.HEAD
		}
		i := 0
		checkResponse(t, input, method, func() int {
			if len(sizes) == 0 {
				return 1 << 16
			}
			i++
			return int(sizes[i%len(sizes)])
		})
	})
}
