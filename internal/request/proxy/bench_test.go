package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// responding is an SSP that responds with 200 and a body.
func responding(tb testing.TB, body string) net.Listener {
	return respondingRaw(tb, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
}

// respondingRaw is an SSP that responds to each GET with these bytes. It allocates nothing, so that
// benchmarks show only the proxy.
func respondingRaw(tb testing.TB, text string) net.Listener {
	l := testsupport.Listen(tb)
	response := []byte(text)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf, n := make([]byte, 8192), 0
				for {
					m, err := c.Read(buf[n:])
					if err != nil {
						return
					}
					if n += m; bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
						c.Write(response)
						n = 0
					}
				}
			}()
		}
	}()
	tb.Cleanup(func() { l.Close() })
	return l
}

// forwarder is a proxy in front of one SSP that responds with 1 KB.
func forwarder(tb testing.TB, change func(*proxy.Options, *route.Route)) *modeProxy {
	return newModeProxy(tb, route.Single, func(o *proxy.Options, rt *route.Route) {
		o.Access.Enabled, o.MaxBufferedBytes = false, 1<<26
		if change != nil {
			change(o, rt)
		}
	}, bidder{name: "a", addr: responding(tb, strings.Repeat("x", 1024)).Addr().String()})
}

var benchmarkRequest = []byte("GET /fill?pub=1&slot=top&cb=12345678 HTTP/1.1\r\nHost: adbuffer.test\r\n" +
	"User-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36\r\nAccept: */*\r\nAccept-Language: en-US,en;q=0.9\r\n" +
	"Referer: https://publisher.example/article/1\r\nX-Forwarded-For: 203.0.113.77\r\n\r\n")

// exchangeOn sends the request on c and reads its response.
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

// This measures a forwarded request, including the work of the client and the SSP.
func BenchmarkForward(b *testing.B) {
	m := forwarder(b, nil)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", m.addr())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for pb.Next() {
			exchangeOn(b, c, r)
		}
	})
}

// Each connection has one stream at a time, as over HTTP/1, and then several at a time.
func BenchmarkForwardH2(b *testing.B) {
	for _, streams := range []int{1, 8} {
		b.Run(strconv.Itoa(streams)+" streams", func(b *testing.B) {
			m := forwarder(b, overTLS)
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				c := m.newStreamClient()
				for more := true; more; {
					n := 0
					for more = pb.Next(); more; more = n < streams && pb.Next() {
						c.request()
						n++
					}
					more = n == streams
					c.readResponses(b, n)
				}
			})
		})
	}
}

// streamClient is an HTTP/2 client of low cost. It sends the same header block each time, and
// checks only for the ends of streams.
type streamClient struct {
	conn  net.Conn
	r     *bufio.Reader
	out   []byte
	block []byte // the request's header block
	id    uint32
	taken uint32 // bytes of bodies since the last WINDOW_UPDATE
}

func (m *modeProxy) newStreamClient() *streamClient { return newStreamClient(m.dialTLS("h2")) }

func newStreamClient(conn net.Conn) *streamClient {
	c := &streamClient{conn: conn, id: 1}
	c.r = bufio.NewReaderSize(c.conn, 32<<10)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "GET"}, {":scheme", "https"}, {":authority", "adbuffer.test"}, {":path", "/fill?pub=1&slot=top&cb=12345678"},
		{"user-agent", "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36"}, {"accept", "*/*"}, {"accept-language", "en-US,en;q=0.9"},
		{"referer", "https://publisher.example/article/1"}, {"x-forwarded-for", "203.0.113.77"},
	} {
		encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	c.block = block.Bytes()
	c.out = append(c.out, http2.ClientPreface...)
	c.frame(http2.FrameSettings, 0, 0, nil)
	c.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	return c
}

func (c *streamClient) frame(t http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	n := len(payload)
	c.out = append(c.out, byte(n>>16), byte(n>>8), byte(n), byte(t), byte(flags), byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	c.out = append(c.out, payload...)
}

func (c *streamClient) request() {
	c.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, c.id, c.block)
	c.id += 2
}

// readResponses sends the queued requests, and reads until n streams have ended.
func (c *streamClient) readResponses(tb testing.TB, n int) {
	if c.taken > 30_000 {
		c.frame(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, c.taken))
		c.taken = 0
	}
	if _, err := c.conn.Write(c.out); err != nil {
		tb.Error(err)
		return
	}
	c.out = c.out[:0]
	for n > 0 {
		head, err := c.r.Peek(9)
		if err != nil {
			tb.Error(err)
			return
		}
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		t, flags := http2.FrameType(head[3]), http2.Flags(head[4])
		c.r.Discard(9)
		if _, err := c.r.Discard(length); err != nil {
			tb.Error(err)
			return
		}
		switch t {
		case http2.FrameData:
			c.taken += uint32(length)
		case http2.FrameRSTStream, http2.FrameGoAway:
			tb.Errorf("a frame %v", t)
			return
		case http2.FrameHeaders:
		default:
			continue
		}
		if flags.Has(http2.FlagDataEndStream) {
			n--
		}
	}
}
