//go:build !race

package proxy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/test/testsupport"
)

// commonRequest is a usual request of a browser: about 800 bytes.
const commonRequest = "GET /fill?pub=1&slot=top&cb=12345678&w=300&h=250 HTTP/1.1\r\nHost: ads.example\r\nUser-Agent: Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Mobile Safari/537.36\r\n" +
	"Accept: application/json, text/plain, */*\r\nAccept-Encoding: gzip, deflate, br\r\nAccept-Language: en-US,en;q=0.9,de;q=0.8\r\nReferer: https://publisher.example/article/2026/11/some-long-headline-of-the-day\r\n" +
	"Origin: https://publisher.example\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: empty\r\nX-Forwarded-For: 203.0.113.77, 198.51.100.9\r\nX-Requested-With: XMLHttpRequest\r\n" +
	"Cookie: uid=4f2a9c1e7b; consent=CPzHq4APzHq4AAGABCENB; session=0123456789abcdef0123456789abcdef\r\n\r\n"

const (
	postHead    = "POST /fill HTTP/1.1\r\nHost: a\r\n"
	chunkedHead = postHead + "Transfer-Encoding: chunked\r\n\r\n"
)

// hostileRequests cost their reader much work for few bytes.
var hostileRequests = map[string]string{
	"tiny fields":               "GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a:\r\n", 126) + "\r\n",
	"too many tiny fields":      "GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a:\r\n", 4000) + "\r\n",
	"fields about the request":  "GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("Via:,\r\nConnection:,\r\nCookie:\r\n", 42) + "\r\n",
	"options of the connection": "GET /fill HTTP/1.1\r\nHost: a\r\nConnection: " + strings.Repeat("a,", 8000) + "\r\n\r\n",
	"few options, many fields":  "GET /fill HTTP/1.1\r\nHost: a\r\nConnection: a,b,c,d,e,f,g,h\r\n" + strings.Repeat("z:\r\n", 125) + "\r\n",
	"one large field":           "GET /fill HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 16000) + "\r\n\r\n",
	"one large name":            "GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("x", 16000) + ": y\r\n\r\n",
	"a list of addresses":       "GET /fill HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: " + strings.Repeat("::,", 5000) + "::\r\n\r\n",
	"lists of addresses":        "GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-Forwarded-For: ::\r\n", 126) + "\r\n",
	"a list of Via":             "GET /fill HTTP/1.1\r\nHost: a\r\nVia: " + strings.Repeat("1 a,", 4000) + "1 a\r\n\r\n",
	"a large target":            "GET /fill?" + strings.Repeat("a&", 8000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"a target of percent signs": "GET /fill?" + strings.Repeat("%41", 5000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"empty lines":               strings.Repeat("\r\n", 8000) + simGet,
	"empty lines alone":         strings.Repeat("\r\n", 9000),
	"a fold":                    "GET /fill HTTP/1.1\r\nHost: a\r\nX: y\r\n" + strings.Repeat(" \r\n", 5000) + "\r\n",
	"a bare LF":                 "GET /fill HTTP/1.1\nHost: a\n\n",
	"one byte":                  "\n",
	"a malformed line":          "x\r\n\r\n",
	"smallest":                  "GET / HTTP/1.0\r\n\r\n",
	"pipelined, garbage behind": simGet + strings.Repeat("\x00", 16000),
	"chunks of a byte":          chunkedHead + strings.Repeat("1\r\nx\r\n", 20_000) + "0\r\n\r\n",
	"chunks of leading zeros":   chunkedHead + strings.Repeat("000000000000001\r\nx\r\n", 5000) + "0\r\n\r\n",
	"chunks of extensions":      chunkedHead + strings.Repeat("1;"+strings.Repeat("a", 250)+"\r\nx\r\n", 60) + "0\r\n\r\n",
	"tiny trailers":             chunkedHead + "0\r\n" + strings.Repeat("a:\r\n", 4000) + "\r\n",
	"one large trailer":         chunkedHead + "0\r\nX: " + strings.Repeat("x", 16000) + "\r\n\r\n",
	"a claimed length":          postHead + "Content-Length: 262144\r\n\r\n",
	"a claimed chunk":           chunkedHead + "40000\r\n",
	"a body to nowhere":         "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000),
	"a tmax deep down":          postHead + "Content-Length: 200000\r\n\r\n" + strings.Repeat("{\"a\":", 40_000),
	"many keys before a tmax":   postHead + "Content-Length: 200001\r\n\r\n{" + strings.Repeat("\"a\":1,", 33_333) + "\"",
}

// hostilePipelines are many small requests. Each counts as a common request, since a small request
// has a cost too.
var hostilePipelines = map[string]string{
	"smallest":       "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"no method":      "X / HTTP/1.1\r\nHost:a\r\n\r\n",
	"uploads":        postHead + "Content-Length: 1\r\n\r\nx",
	"empty chunked":  chunkedHead + "0\r\n\r\n",
	"empty lines":    "\r\n\r\n\r\n" + simGet,
	"bodies skipped": "PUT / HTTP/1.1\r\nHost:a\r\nContent-Length:3\r\n\r\nabc",
}

// A byte of any request, in any pieces, costs little more CPU and memory than a byte of a common
// request: at most a constant multiple.
func TestHostileRequestsCostLittleMoreThanCommonOnes(t *testing.T) {
	testsupport.Long(t)
	s := newSimProxy(t, func(o *proxy.Options) {
		o.MaxHeaderBytes, o.Deadline.OpenRTBTmax, o.Via = 16<<10, true, "adbuffer-0123456789abcdef"
	})
	defer s.close()
	s.ssp.terse = true
	for _, segment := range []int{0, 1} {
		send := func(in string) func() {
			return func() {
				c := &memConn{in: []byte(in), closed: make(chan struct{})}
				if segment > 0 {
					c.segments = []int{segment}
				}
				s.l.accept <- c
				<-c.closed
			}
		}
		cost := func(in string) func() time.Duration {
			return func() time.Duration { return testsupport.Shortest(send(in)) }
		}
		common := testsupport.CommonInput{Bytes: len(commonRequest), Cost: cost(commonRequest)}
		allocated := allocatedBy(send(commonRequest))
		// hold compares in with the same number of common requests.
		hold := func(name, in string, requests int) {
			t.Helper()
			common.Hold(t, fmt.Sprintf("%s, segments of %d", name, segment), max(len(in), requests*len(commonRequest)), cost(in))
			if n := allocatedBy(send(in)); n > 4*(requests*allocated+len(in)) {
				t.Errorf("%s: %d bytes in %d requests have %d allocated, a common one of %d bytes %d", name, len(in), requests, n, len(commonRequest), allocated)
			}
		}
		for name, in := range hostileRequests {
			if segment == 0 || len(in) < 40_000 { // a longer input would show the same and take longer
				hold(name, in, 1)
			}
		}
		for name, in := range hostilePipelines {
			hold("pipelined, "+name, strings.Repeat(in, 300), 300)
		}
	}
}

// allocatedBy returns how many bytes f allocates: the minimum of a few runs.
func allocatedBy(f func()) int {
	least := uint64(1 << 40)
	for range 20 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return int(least)
}

// A connection holds one buffer for message heads, for any sequence of heads: a large field in a new
// position each time must not leave a large buffer for each position.
func TestMemoryOfAConnectionDoesNotGrowWithTheHeadsItSends(t *testing.T) {
	const clients, places, most = 8, 120, 128 << 10
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, func(o *proxy.Options) { o.MaxHeaderBytes = 16 << 10 })
		defer s.close()
		heap := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := heap()
		var all []*simClient
		for range clients {
			c := s.dial()
			all = append(all, c)
			for i := range places {
				c.say("GET /fill HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a:\r\n", i) + "x: " + strings.Repeat("x", 16_000-4*i) + "\r\n\r\n")
				c.wantOK()
			}
		}
		testsupport.AtMost(t, (heap()-before)/clients, most, "each connection holds %d bytes")
		for _, c := range all {
			c.Release()
		}
	})
}
