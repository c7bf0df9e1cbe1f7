//go:build !race

// The race detector would make the comparisons take six times as long. Other tests look for races.

package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/wire/exchange"

	"adbuffer/internal/test/testsupport"
)

// memConn is a client that has sent all its bytes, and closed. The bytes arrive in segments.
type memConn struct {
	in       []byte
	segments []int // lengths of the segments; the last one repeats; empty means one segment
	out      bytes.Buffer
	closed   chan struct{}
}

func (c *memConn) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := len(b)
	if len(c.segments) > 0 {
		n = min(n, c.segments[0])
		if len(c.segments) > 1 {
			c.segments = c.segments[1:]
		}
	}
	n = copy(b[:n], c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *memConn) Write(b []byte) (int, error)      { return c.out.Write(b) }
func (c *memConn) Close() error                     { close(c.closed); return nil }
func (c *memConn) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "unix"} }
func (c *memConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Net: "unix"} }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// newFuzzProxy returns a proxy with the limits of the reference. Its SSP records its requests.
func newFuzzProxy(t testing.TB) (s *simProxy, sent *[]refRequest) {
	s = newSimProxy(t, func(o *proxy.Options) { o.MaxHeaderBytes, o.MaxBodyBytes = refMaxHead, refMaxBody })
	sent = new([]refRequest)
	s.ssp.note = func(r *exchange.Request) {
		*sent = append(*sent, refRequest{method: r.Method.String(), target: string(r.Target), body: string(r.Body)})
	}
	return s, sent
}

// compare sends in to the proxy and to the reference, and reports their differences.
func (s *simProxy) compare(sent *[]refRequest, in []byte, segments []int) error {
	*sent = nil
	c := &memConn{in: bytes.Clone(in), segments: segments, closed: make(chan struct{})}
	s.l.accept <- c
	<-c.closed

	want := byRFC9112(string(in))
	out := bufio.NewReader(&c.out)
	forwarded := *sent
	for i, r := range want {
		if r.open {
			return nil
		}
		res, err := http.ReadResponse(out, &http.Request{Method: r.method})
		for err == nil && res.StatusCode == http.StatusContinue {
			res, err = http.ReadResponse(out, &http.Request{Method: r.method})
		}
		if err != nil {
			return fmt.Errorf("request %d: no response: %v, want %v", i, err, r.statuses)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil && !r.last { // the response to a malformed HEAD may have a body or not
			return fmt.Errorf("request %d: %w", i, err)
		}
		if !slices.Contains(r.statuses, res.StatusCode) {
			return fmt.Errorf("request %d: status %d %s, want %v", i, res.StatusCode, body, r.statuses)
		}
		if r.last && i < len(want) && !res.Close {
			return fmt.Errorf("request %d: the response %d does not say that the connection ends", i, res.StatusCode)
		}
		if !r.forwarded {
			continue
		}
		if len(forwarded) == 0 {
			return fmt.Errorf("request %d was not forwarded", i)
		}
		if f := forwarded[0]; f.method != r.method || f.target != r.target || f.body != r.body {
			return fmt.Errorf("request %d was forwarded as %+v, want %+v", i, f, r)
		}
		forwarded = forwarded[1:]
	}
	if len(forwarded) > 0 {
		return fmt.Errorf("forwarded as well: %+v", forwarded)
	}
	if n := out.Buffered() + c.out.Len(); n > 0 {
		return fmt.Errorf("%d responses are followed by %d bytes", len(want), n)
	}
	return nil
}

// byNetHTTP compares the forwarded requests with net/http's reader: if it can read the client's
// bytes, it reads the same requests.
func byNetHTTP(in []byte, forwarded []refRequest) error {
	r := bufio.NewReader(bytes.NewReader(in))
	for len(forwarded) > 0 {
		for { // net/http accepts no empty line before a request
			if b, err := r.Peek(2); err != nil || string(b) != "\r\n" {
				break
			}
			r.Discard(2)
		}
		req, err := http.ReadRequest(r)
		if err != nil {
			return nil // net/http is stricter, for example about targets
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil // net/http refuses blanks before a chunk's extensions
		}
		if req.URL.Path != "/fill" || !slices.Contains([]string{"GET", "HEAD", "POST"}, req.Method) {
			continue
		}
		if f := forwarded[0]; f.method != req.Method || f.body != string(body) {
			return fmt.Errorf("net/http reads %s with %q, and %+v was forwarded", req.Method, body, f)
		}
		forwarded = forwarded[1:]
	}
	return nil
}

// clientSeeds are the requests from which mutate makes inputs.
var clientSeeds = []string{
	simGet, "HEAD /fill?a=1 HTTP/1.1\r\nHost: a\r\n\r\n", "POST /fill HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n\r\nhello",
	"POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: x\r\n\r\n",
	"GET /fill HTTP/1.0\r\n\r\n", "GET /fill HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "POST /fill HTTP/1.0\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx",
	"PUT /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "PUT /fill HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n 2\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET http://a/fill?x HTTP/1.1\r\nHost: a\r\n\r\n", "POST /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
	"POST /fill HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab", "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 65\r\n\r\n",
	"GET /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "GET /fill HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "\r\n\r\n" + simGet,
	"HEAD /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "GET /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HEAD /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
	"DELETE /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "GET /fill HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "X /fill#x HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /fill HTTP/1.1\nHost: a\n\n", "GET /fill HTTP/1.1\r\nHost: a\r\nX Y: z\r\n\r\n", "POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
	"POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
	"POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a:\r\n", 130) + "\r\n", "GET /fill HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", refMaxHead) + "\r\n\r\n",
}

// clientPieces are inserted into inputs.
var clientPieces = []string{
	"\r", "\n", "\r\n", "\r\n\r\n", " ", "\t", "\x00", ":", ";", "0", "1", "5", "ff", "GET", "Host: b\r\n", "Content-Length: 5\r\n", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n",
	"transfer-encoding:chunked\r\n", "Connection: close\r\n", "Expect: 100-continue\r\n", "HTTP/1.0", "HTTP/1.1", "0\r\n\r\n", "\xff", "\x7f", "#", "?", "*", "http://", "X: y\r\n z\r\n",
}

// mutate makes an input from several seeds in sequence, with small changes.
func mutate(r *rand.Rand) []byte {
	var in []byte
	for range 1 + r.IntN(4) {
		in = append(in, clientSeeds[r.IntN(len(clientSeeds))]...)
	}
	for range r.IntN(4) {
		at := r.IntN(len(in) + 1)
		switch r.IntN(4) {
		case 0:
			in = slices.Delete(in, at, min(len(in), at+1+r.IntN(3)))
		case 1:
			in = slices.Insert(in, at, []byte(clientPieces[r.IntN(len(clientPieces))])...)
		case 2:
			in = in[:at]
		case 3:
			if at < len(in) {
				in[at] = byte(r.IntN(256))
			}
		}
	}
	return in
}

// adbuffer forwards the requests that RFC 9112 and net/http find in a client's bytes, and returns
// their responses. The segments in which the bytes arrive make no difference.
func TestClientsAreReadAsRFC9112Says(t *testing.T) {
	testsupport.Long(t)
	cases := 6_000
	if *full {
		cases = 1_000_000
	}
	s, sent := newFuzzProxy(t)
	defer s.close()
	check := func(in []byte, segments []int) {
		t.Helper()
		if err := s.compare(sent, in, segments); err != nil {
			t.Fatalf("%q in segments %v: %v", in, segments, err)
		}
		err := byNetHTTP(in, *sent)
		testsupport.MustTrue(t, err == nil, "%q in segments %v: %v", in, segments, err)
	}
	for _, one := range clientSeeds {
		for cut := range len(one) {
			check([]byte(one[:cut]), nil)
		}
		for _, two := range clientSeeds {
			cuts := [][]int{nil, {1}, {len(one)}, {len(one) + 1}}
			if *full {
				cuts = append(cuts, []int{7}, []int{len(one) - 1, 1})
			}
			for _, segments := range cuts {
				check([]byte(one+two), segments)
			}
		}
	}
	r := rand.New(rand.NewPCG(11, 12))
	for range cases {
		in := mutate(r)
		check(in, [][]int{nil, {1}, {1 + r.IntN(len(in)+1), 1 + r.IntN(10), 1000}}[r.IntN(3)])
	}
}

func FuzzClientsAreReadAsRFC9112Says(f *testing.F) {
	for _, seed := range clientSeeds {
		f.Add([]byte(seed+simGet), uint16(0))
	}
	s, sent := newFuzzProxy(f)
	f.Cleanup(s.close)
	f.Fuzz(func(t *testing.T, in []byte, segment uint16) {
		var segments []int
		if segment > 0 {
			segments = []int{int(segment)}
		}
		testsupport.NoError(t, s.compare(sent, in, segments))
		testsupport.NoError(t, byNetHTTP(in, *sent))
	})
}
