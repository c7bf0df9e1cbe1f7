package sspsim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

const get = "GET / HTTP/1.1\r\nHost: a\r\n"

func TestRequestsThatBreakARuleAreRefusedAndCounted(t *testing.T) {
	s := start(t, Options{MaxRequestBody: 1000})
	for _, v := range []struct {
		request string
		status  int
		reason  string
	}{
		{"GET / HTTP/1.1\nHost: a\n\n", 400, "LF without CR"},
		{get + "X: a\n\r\n", 400, "LF without CR"},
		{get + "X: a\r\n b\r\n\r\n", 400, "obs-fold"},
		{get + "X: a\r\n\t: b\r\n\r\n", 400, "obs-fold"},
		{get + " X: b\r\n\r\n", 400, "obs-fold"},
		{get + "X : b\r\n\r\n", 400, "is not a token"},
		{get + "X\r\n\r\n", 400, "has no name"},
		{get + ": b\r\n\r\n", 400, "has no name"},
		{get + "X: a\x00b\r\n\r\n", 400, "control byte"},
		{get + "X: a\rb\r\n\r\n", 400, "control byte"},
		{get + "Host: b\r\n\r\n", 400, "2 Host fields"},
		{"GET / HTTP/1.1\r\n\r\n", 400, "0 Host fields"},
		{"\r\n" + get + "\r\n", 400, "request line"},
		{"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
		{"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
		{"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505, "version"},
		{"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "version"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version"},
		{"GET /\r\nHost: a\r\n\r\n", 400, "request line"},
		{"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "method"},
		{get + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "beside"},
		{get + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, "two Content-Length"},
		{get + "Content-Length: +1\r\n\r\n", 400, "is not a number"},
		{get + "Content-Length: 1, 1\r\n\r\n", 400, "is not a number"},
		{get + "Content-Length:\r\n\r\n", 400, "is not a number"},
		{get + "Content-Length: 9999999999999999\r\n\r\n", 400, "is not a number"},
		{get + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "not chunked"},
		{get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501, "not chunked"},
		{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "in HTTP/1.0"},
		{get + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "not hexadecimal"},
		{get + "Transfer-Encoding: chunked\r\n\r\n\r\n", 400, "without a size"},
		{get + "Transfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n", 400, "not hexadecimal"},
		{get + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400, "longer than its size"},
		{get + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\n0\r\n\r\n", 400, "LF without CR"},
		{get + "Transfer-Encoding: chunked\r\n\r\n11111111\r\n", 400, "over 7 digits"},
		{get + "Transfer-Encoding: chunked\r\n\r\n0\r\nX\r\n\r\n", 400, "has no name"},
		{get + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n", 413, "over 1000"},
		{get + "Content-Length: 1001\r\n\r\n", 413, "over 1000"},
		{get + "X: " + strings.Repeat("a", maxHeadBytes) + "\r\n\r\n", 431, "head is over"},
		{get + strings.Repeat("X: "+strings.Repeat("a", 1000)+"\r\n", 70) + "\r\n", 431, "head is over"},
		{get + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: "+strings.Repeat("a", 1000)+"\r\n", 10) + "\r\n", 431, "trailer is over"},
		{get + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 300) + "\r\n", 431, "chunk size is over"},
	} {
		s.ResetCounters()
		c := dial(t, s)
		c.send(v.request)
		resp, body := c.response("GET")
		if resp.StatusCode != v.status || !resp.Close || !strings.Contains(body, v.reason) {
			t.Errorf("%.100q: %d %q, want %d with %q", v.request, resp.StatusCode, body, v.status, v.reason)
		}
		c.wantEnd()
		if n := s.Counters(); n.BadRequests != 1 || n.Requests != 0 || !strings.Contains(n.LastBadRequest, v.reason) {
			t.Errorf("%.100q: counters %+v", v.request, n)
		}
	}
}

func TestRequestsCutShortAreNeitherProcessedNorRefused(t *testing.T) {
	s := startWith(t, Behaviour{})
	for _, request := range []string{"GET", get, get + "Content-Length: 10\r\n\r\nabc", get + "Transfer-Encoding: chunked\r\n\r\n5\r\nab"} {
		c := dial(t, s)
		c.send(request)
		if err := c.c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.wantEnd()
	}
	if n := s.Counters(); n.Requests != 0 || n.BadRequests != 0 {
		t.Errorf("counters %+v", n)
	}
}

func TestRequestsArriveInAnyPieces(t *testing.T) {
	body := strings.Repeat("0123456789", 2000)
	stream := get + "\r\n" +
		"POST /l?cb=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + body +
		"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4E20\r\n" + body + "\r\n0\r\nT: 1\r\n\r\n" +
		"GET /last HTTP/1.0\r\n\r\n"
	for _, piece := range []int{1, 2, 7, 1000, 1 << 20} {
		r := requestReader{src: bufio.NewReader(&pieces{text: stream, n: piece}), maxBody: 1 << 20}
		var q http1Request
		for i, want := range []struct{ target, body string }{{"/", ""}, {"/l?cb=1", body}, {"/c", body}, {"/last", ""}} {
			if err := errors.Join(r.readMessageHead(&q), r.readBody(&q)); err != nil || string(q.target) != want.target || string(q.body) != want.body {
				t.Fatalf("pieces of %d, request %d: %v, %q, %d body bytes", piece, i, err, q.target, len(q.body))
			}
		}
		if err := r.readMessageHead(&q); err != io.EOF {
			t.Errorf("behind the last request: %v", err)
		}
	}
}

// pieces reads text in pieces of n bytes.
type pieces struct {
	text string
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// FuzzRequest checks that the division into pieces makes no difference, that no byte after a
// request is consumed, and that net/http parses the same request.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		get + "\r\n", get + "Content-Length: 3\r\n\r\nabcGET", "GET / HTTP/1.0\r\n\r\n",
		get + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nrest",
		get + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		get + "X: a\r\n b\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", get + "Connection: close, x\r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		read := func(n int) (http1Request, []byte, error) {
			r := requestReader{src: bufio.NewReader(&pieces{text: string(stream), n: n}), maxBody: 1 << 16}
			var q http1Request
			err := r.readMessageHead(&q)
			if err == nil {
				err = r.readBody(&q)
			}
			rest, _ := io.ReadAll(r.src)
			return q, rest, err
		}
		q, rest, err := read(len(stream) + 1)
		q2, rest2, err2 := read(int(piece)%16 + 1)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("whole: %v; in pieces: %v", err, err2)
		}
		if err != nil {
			return
		}
		if !bytes.Equal(q.target, q2.target) || !bytes.Equal(q.body, q2.body) || !bytes.Equal(rest, rest2) || len(q.fields) != len(q2.fields) {
			t.Fatalf("whole: %q, %q, rest %q; in pieces: %q, %q, rest %q", q.target, q.body, rest, q2.target, q2.body, rest2)
		}
		br := bufio.NewReaderSize(bytes.NewReader(stream), len(stream)+16)
		other, err := http.ReadRequest(br)
		if err != nil {
			return // net/http is stricter about targets and hosts
		}
		body, err := io.ReadAll(other.Body)
		if err != nil {
			t.Fatalf("net/http cannot read the body of a request that sspsim accepts: %v", err)
		}
		left, _ := io.ReadAll(br)
		if other.Method != string(q.method) || other.RequestURI != string(q.target) || !bytes.Equal(body, q.body) || !bytes.Equal(left, rest) {
			t.Fatalf("net/http: %s %q %q, rest %q; we: %s %q %q, rest %q", other.Method, other.RequestURI, body, left, q.method, q.target, q.body, rest)
		}
	})
}
