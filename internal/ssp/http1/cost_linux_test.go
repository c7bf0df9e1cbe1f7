//go:build !race

package http1

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// ordinaryResponse is a usual response of an SSP: about 1.4 KB.
var ordinaryResponse = "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 09:00:52 GMT\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n" +
	"Connection: keep-alive\r\nCache-Control: no-store\r\nServer: openresty\r\nX-Openrtb-Version: 2.6\r\nVary: Accept-Encoding\r\n" +
	"Access-Control-Allow-Origin: *\r\nP3P: CP=\"NOI DSP COR NID\"\r\n\r\n" + strings.Repeat("x", 1024)

// hostileResponses cost a parser much work for few bytes.
var hostileResponses = map[string]string{
	"tiny fields":             "HTTP/1.1 200 OK\r\n" + strings.Repeat("a:\r\n", 250) + "Content-Length: 0\r\n\r\n",
	"tiny fields, bare LF":    "HTTP/1.1 200 OK\n" + strings.Repeat("a:\n", 250) + "Content-Length: 0\n\n",
	"fields about framing":    "HTTP/1.1 200 OK\r\n" + strings.Repeat("Connection:,\r\n", 250) + "Content-Length: 0\r\n\r\n",
	"options of a connection": "HTTP/1.1 200 OK\r\nConnection: " + strings.Repeat("a,", 8000) + "\r\nContent-Length: 0\r\n\r\n",
	"one large field":         "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 16000) + "\r\nContent-Length: 0\r\n\r\n",
	"folds":                   "HTTP/1.1 200 OK\r\nX: y\r\n" + strings.Repeat(" \r\n", 5000) + "Content-Length: 0\r\n\r\n",
	"folds, bare LF":          "HTTP/1.1 200 OK\nX: y\n" + strings.Repeat(" \n", 8000) + "Content-Length: 0\n\n",
	"reason":                  "HTTP/1.1 200 " + strings.Repeat("x", 16000) + "\r\nContent-Length: 0\r\n\r\n",
	"interim responses":       strings.Repeat("HTTP/1.1 103\r\n\r\n", maxInterim) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"smallest":                "HTTP/1.1 204\r\n\r\n",
	"chunks of a byte":        chunkedHead + strings.Repeat("1\r\nx\r\n", 5000) + "0\r\n\r\n",
	"chunks of leading zeros": chunkedHead + strings.Repeat(strings.Repeat("0", 250)+"1\r\nx\r\n", 200) + "0\r\n\r\n",
	"chunks of extensions":    chunkedHead + strings.Repeat("1;"+strings.Repeat("a", 250)+"\r\nx\r\n", 200) + "0\r\n\r\n",
	"tiny trailers":           chunkedHead + "0\r\n" + strings.Repeat("a:\r\n", 250) + "\r\n",
	"one large trailer":       chunkedHead + "0\r\nX: " + strings.Repeat("x", 16000) + "\r\n\r\n",
}

// pieces is a source that returns at most size bytes at once.
type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(len(p.text), p.size)])
	p.text = p.text[n:]
	return n, nil
}

// cost is the cost of reading a response, per byte of the response.
type cost struct{ nanoseconds, allocated float64 }

// costOf reads text many times, in pieces of size bytes, each time into new memory.
func costOf(t *testing.T, text string, size int) cost {
	t.Helper()
	opts := testOptions()
	src := &pieces{size: size}
	br := bufio.NewReaderSize(src, opts.MaxResponseHeaderBytes)
	a := opts.newResponseReader()
	ex := exchange.AcquireExchange()
	times := 1 + 100_000/len(text)
	if size == 1 {
		times = 1 + times/10
	}
	best := cost{nanoseconds: 1e18, allocated: 1e18}
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took := testsupport.ThreadTime(func() {
			for range times {
				src.text = text
				br.Reset(src)
				ex.Response = exchange.Response{ContentLength: -1}
				a.start(exchange.GET)
				testsupport.NoError(t, a.read(br, ex))
			}
		})
		runtime.ReadMemStats(&after)
		n := float64(times * len(text))
		best.nanoseconds = min(best.nanoseconds, float64(took)/n)
		best.allocated = min(best.allocated, float64(after.TotalAlloc-before.TotalAlloc)/n)
	}
	return best
}

// A byte of any response costs at most a fixed multiple of the CPU and memory of a byte of an
// ordinary response.
const (
	maxCostRatio   = 40
	maxMemoryRatio = 6
)

func TestCostOfHostileResponsesIsBoundedByTheirBytes(t *testing.T) {
	for how, size := range map[string]int{"at once": 1 << 20, "byte by byte": 1} {
		ordinary := costOf(t, ordinaryResponse, size)
		t.Logf("ordinary, %s: %.2f ns and %.2f bytes for a byte", how, ordinary.nanoseconds, ordinary.allocated)
		for name, text := range hostileResponses {
			c := costOf(t, text, size)
			what := fmt.Sprintf("%s, %s: %.1f times the CPU and %.1f times the memory of an ordinary response", name, how, c.nanoseconds/ordinary.nanoseconds, c.allocated/ordinary.allocated)
			if c.nanoseconds > maxCostRatio*ordinary.nanoseconds || c.allocated > maxMemoryRatio*max(ordinary.allocated, 1) {
				t.Error(what)
			} else {
				t.Log(what)
			}
		}
	}
}
