package load

import (
	"adbuffer/internal/sspsim"
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestRequestIsWhatNetHTTPReads(t *testing.T) {
	set := NewSet("ads.example", []Template{{Name: "bid", Method: "POST", Path: "/fillbuffer?cb={n}", JSON: true,
		Headers: []Field{{"X-Request-Id", "r{n}"}}, Body: sspsim.Size{Constant: 1300}}}, false, 1)
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(set.Next().Append(nil, 42))))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(body) != 1300 || req.ContentLength != 1300 {
		t.Errorf("body of %d bytes, Content-Length %d, want 1300", len(body), req.ContentLength)
	}
	var bid struct{ ID string }
	if err := json.Unmarshal(body, &bid); err != nil || bid.ID != "0000000042" {
		t.Errorf("bid id %q, %v", bid.ID, err)
	}
	if req.URL.RawQuery != "cb=0000000042" || req.Header.Get("X-Request-Id") != "r0000000042" || req.Host != "ads.example" {
		t.Errorf("query %q, header %q, host %q", req.URL.RawQuery, req.Header.Get("X-Request-Id"), req.Host)
	}
}

func TestBodySizesHaveTheSpreadAskedFor(t *testing.T) {
	set := NewSet("h", []Template{{Method: "POST", Path: "/", Body: sspsim.Size{P50: 1300, P95: 3000}}}, false, 1)
	var sizes []int
	for range bodyVariants {
		sizes = append(sizes, len(set.Next().Body))
	}
	slices.Sort(sizes)
	if p50 := sizes[bodyVariants/2]; p50 < 1290 || p50 > 1310 {
		t.Errorf("p50 %d, want 1300", p50)
	}
	if p95 := sizes[bodyVariants*95/100]; p95 < 2900 || p95 > 3100 {
		t.Errorf("p95 %d, want 3000", p95)
	}
}

func TestTemplatesAreDrawnByWeight(t *testing.T) {
	set := NewSet("h", []Template{{Method: "GET", Path: "/a", Weight: 3}, {Method: "GET", Path: "/b"}}, false, 1)
	var n [2]int
	for range 40000 {
		n[set.Next().Class]++
	}
	if n[0] < 29500 || n[0] > 30500 {
		t.Errorf("%d of 40000 draws, want about 30000", n[0])
	}
}

// responses are complete responses. The parser reads each in pieces of every size.
var responses = []struct {
	raw    string
	status int
	body   int64
	close  bool
}{
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, 5, false},
	{"HTTP/1.1 204 No Content\r\n\r\n", 204, 0, false},
	{"HTTP/1.1 200\r\ncontent-length:0\r\nCONNECTION: Close\r\n\r\n", 200, 0, true},
	{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.", 200, 1, false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n", 200, 15, false},
	{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", 200, 2, true},
	{"HTTP/1.1 503 Service Unavailable\r\nX-Adbuffer-Source: proxy/pending_full\r\nX-Echo-Cb: 77\r\nContent-Length: 2\r\n\r\n{}", 503, 2, false},
}

func TestResponsesAreReadInPiecesOfAnySize(t *testing.T) {
	for _, a := range responses {
		for size := 1; size <= len(a.raw); size++ {
			var p Parser
			var kept []byte
			done := false
			for rest := []byte(a.raw); len(rest) > 0; {
				n := min(size, len(rest))
				kept = append(kept, rest[:n]...)
				rest = rest[n:]
				used, d, err := p.Next(kept)
				if err != nil {
					t.Fatalf("%q in pieces of %d: %v", a.raw, size, err)
				}
				kept = kept[used:]
				if d && len(rest) > 0 {
					t.Fatalf("%q in pieces of %d: done %d bytes early", a.raw, size, len(rest))
				}
				done = d
			}
			if !done || len(kept) != 0 || p.Status != a.status || p.Body != a.body || p.Close != a.close {
				t.Fatalf("%q in pieces of %d: done %v, kept %q, %+v", a.raw, size, done, kept, p.Response)
			}
		}
	}
	last := responses[len(responses)-1].raw
	var p Parser
	if _, done, _ := p.Next([]byte(last)); !done || string(p.Source) != "proxy/pending_full" || string(p.Echo) != "77" {
		t.Errorf("source %q, echo %q", p.Source, p.Echo)
	}
}

func TestBodyToTheEndOfTheConnectionEndsWithIt(t *testing.T) {
	var p Parser
	if _, done, err := p.Next([]byte("HTTP/1.1 200 OK\r\n\r\nabc")); done || err != nil || !p.Close {
		t.Fatalf("done %v, %v, close %v", done, err, p.Close)
	}
	if !p.EndsWithConnection() || p.Body != 3 {
		t.Errorf("the end completed no response, body %d", p.Body)
	}
}

func TestBrokenResponsesAreRefused(t *testing.T) {
	for _, raw := range []string{
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.1 20x OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
		"HTTP/1.1 200 OK\r\n: v\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", maxHead),
	} {
		var p Parser
		if _, _, err := p.Next([]byte(raw)); err == nil {
			t.Errorf("%.60q was taken", raw)
		}
	}
}

// FuzzParserAgreesWithNetHTTP checks that the parser and net/http read the same status and the same
// number of body bytes, if both read a response.
func FuzzParserAgreesWithNetHTTP(f *testing.F) {
	for _, a := range responses {
		f.Add([]byte(a.raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p Parser
		n, done, err := p.Next(raw)
		if n > len(raw) || n < 0 {
			t.Fatalf("consumed %d of %d", n, len(raw))
		}
		if !done || err != nil {
			return
		}
		r := bufio.NewReader(bytes.NewReader(raw))
		for {
			resp, err := http.ReadResponse(r, &http.Request{Method: "GET"})
			if err != nil {
				return
			}
			if resp.StatusCode < 200 {
				continue
			}
			body, err := io.Copy(io.Discard, resp.Body)
			if err == nil && (resp.StatusCode != p.Status || body != p.Body) {
				t.Fatalf("status %d and %d bytes, net/http reads %d and %d", p.Status, p.Body, resp.StatusCode, body)
			}
			return
		}
	})
}
