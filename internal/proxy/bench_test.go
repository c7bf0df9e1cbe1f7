package proxy_test

import (
	"bufio"
	"bytes"
	"net"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
)

// answers is an SSP that allocates nothing for an answer, so that benchmarks
// show what the proxy does.
func answers(tb testing.TB, body string) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // the benchmark is over
				buf, n := make([]byte, 8192), 0
				for {
					m, err := c.Read(buf[n:])
					if err != nil {
						return
					}
					if n += m; bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
						c.Write(answer) //nolint:errcheck // the next read fails then
						n = 0
					}
				}
			}()
		}
	}()
	tb.Cleanup(func() { l.Close() }) //nolint:errcheck // as above
	return l
}

// forwarder is a proxy in front of one SSP that answers 1 KB.
func forwarder(tb testing.TB) *modeProxy {
	return newModeProxy(tb, route.Single, func(o *proxy.Options, _ *route.Route) { o.Access.Enabled = false }, bidder{name: "a", addr: answers(tb, strings.Repeat("x", 1024)).Addr().String()})
}

var benchmarkRequest = []byte("GET /fill?pub=1&slot=top&cb=12345678 HTTP/1.1\r\nHost: adbuffer.test\r\n" +
	"User-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.9\r\n" +
	"Referer: https://publisher.example/article/1\r\nX-Forwarded-For: 203.0.113.77\r\n\r\n")

// exchangeOn sends the request on c and reads its answer.
func exchangeOn(tb testing.TB, c net.Conn, r *bufio.Reader) {
	if _, err := c.Write(benchmarkRequest); err != nil {
		tb.Fatal(err)
	}
	length := -1
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			tb.Fatal(err)
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length = 0
			for _, c := range bytes.TrimSpace(v) {
				length = 10*length + int(c-'0')
			}
		}
	}
	if length != 1024 {
		tb.Fatalf("length %d", length)
	}
	if _, err := r.Discard(length); err != nil {
		tb.Fatal(err)
	}
}

// What a forwarded request costs, with the client's and the SSP's share of it.
func BenchmarkForward(b *testing.B) {
	m := forwarder(b)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close() //nolint:errcheck // the benchmark is over
		r := bufio.NewReader(c)
		for pb.Next() {
			exchangeOn(b, c, r)
		}
	})
}
