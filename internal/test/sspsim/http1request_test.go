package sspsim

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

const get = "GET / HTTP/1.1\r\nHost: a\r\n"

func TestRequestsThatBreakARuleAreRefusedAndCounted(t *testing.T) {
	s := start(t, Options{})
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
		{get + "Transfer-Encoding: chunked\r\n\r\n100001\r\n", 413, "over 1048576"},
		{get + "Content-Length: 1048577\r\n\r\n", 413, "over 1048576"},
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
		testsupport.NoError(t, c.c.(interface{ CloseWrite() error }).CloseWrite())
		c.wantEnd()
	}
	if n := s.Counters(); n.Requests != 0 || n.BadRequests != 0 {
		t.Errorf("counters %+v", n)
	}
}
