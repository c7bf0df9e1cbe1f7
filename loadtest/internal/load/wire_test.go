package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestRequestIsWhatNetHTTPReads(t *testing.T) {
	set := newSet(&Plan{Addr: "ads.example", Templates: []Template{{Name: "bid", Method: "POST", Path: "/fillbuffer?cb={n}",
		JSON: true, Headers: []Field{{"X-Request-Id", "r{n}"}}, Body: sspsim.Size{Constant: 1300}}}})
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(set.choose().append(nil, 42))))
	testsupport.NoError(t, err)
	body, err := io.ReadAll(req.Body)
	testsupport.NoError(t, err)
	if len(body) != 1300 || req.ContentLength != 1300 {
		t.Errorf("body of %d bytes, Content-Length %d, want 1300", len(body), req.ContentLength)
	}
	var bid struct{ ID string }
	if err := json.Unmarshal(body, &bid); err != nil || bid.ID != "0000000042" {
		t.Errorf("bid id %q, %v", bid.ID, err)
	}
	if req.URL.RawQuery != "cb=0000000042" || req.Header.Get("X-Request-Id") != "r0000000042" ||
		req.Host != "ads.example" {
		t.Errorf("query %q, header %q, host %q", req.URL.RawQuery, req.Header.Get("X-Request-Id"), req.Host)
	}
}

func TestBodySizesHaveTheSpreadAskedFor(t *testing.T) {
	set := newSet(&Plan{Templates: []Template{{Method: "POST", Path: "/", Body: sspsim.Size{P50: 1300, P95: 3000}}}})
	var sizes []int
	for range bodyVariants {
		_, body, _ := bytes.Cut(set.choose().append(nil, 1), []byte("\r\n\r\n"))
		sizes = append(sizes, len(body))
	}
	slices.Sort(sizes)
	testsupport.Between(t, sizes[bodyVariants/2], 1290, 1310, "p50 %d, want 1300")
	testsupport.Between(t, sizes[bodyVariants*95/100], 2900, 3100, "p95 %d, want 3000")
}

func TestTemplatesAreDrawnByWeight(t *testing.T) {
	set := newSet(&Plan{Templates: []Template{{Method: "GET", Path: "/a", Weight: 3}, {Method: "GET", Path: "/b"}}})
	var n [2]int
	for range 10000 {
		n[set.choose().class]++
	}
	testsupport.Between(t, n[0], 7300, 7700, "%d of 10000 draws, want about 7500")
}

// serveRaw responds to each request on a connection with a text, and closes the connection after last of them.
func serveRaw(t *testing.T, text string, last int) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for range last {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					_, _ = io.WriteString(c, text)
				}
			}()
		}
	}()
	return ln.Addr().String()
}

func TestResponsesOfEveryFramingAreRead(t *testing.T) {
	for raw, connections := range map[string]uint64{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello":                                                           1,
		"HTTP/1.1 204 No Content\r\n\r\n":                                                                             1,
		"HTTP/1.1 200 OK\r\ncontent-length:0\r\nCONNECTION: Close\r\n\r\n":                                            4,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n": 1,
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab":                                                              4,
		"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.":                    1,
	} {
		r := run(t, closedPlan(serveRaw(t, raw, 1000), 4, 1))
		if r.Whole.Answered != 4 || r.Connections != connections {
			t.Errorf("%q: %d responses, %v, %d connections", raw, r.Whole.Answered, r.Whole.Errors, r.Connections)
		}
	}
	// The end of the connection ends the body.
	if r := run(t, closedPlan(serveRaw(t, "HTTP/1.1 200 OK\r\n\r\nabc", 1), 4, 1)); r.Whole.Answered != 4 ||
		r.Connections != 4 {
		t.Errorf("%d responses, %v, %d connections", r.Whole.Answered, r.Whole.Errors, r.Connections)
	}
}

func TestBrokenResponsesAreErrors(t *testing.T) {
	for raw, kind := range map[string]string{
		"HTTP/2 200 OK\r\n\r\n":                                                                   badResponse,
		"HTTP/1.1 20x OK\r\n\r\n":                                                                 badResponse,
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n":                                           badResponse,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na":                      badResponse,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na":                      badResponse,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\na":                                     badResponse,
		"HTTP/1.1 200 OK\r\n: v\r\nContent-Length: 1\r\n\r\na":                                    badResponse,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nno field\r\n\r\na":                               badResponse,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nA: " + strings.Repeat("a", 64<<10) + "\r\n\r\na": badResponse,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n":                            badResponse,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n":                       badResponse,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello":                                       Cut,
		"HTTP/1.1 200 OK\r\nContent-Le":                                                           Cut,
		"":                                                                                        Closed,
	} {
		r := run(t, closedPlan(serveRaw(t, raw, 1), 3, 1))
		if r.Whole.Answered != 0 || r.Whole.Errors[kind] != 3 {
			t.Errorf("%.120q: %d responses, errors %v, want %q", raw, r.Whole.Answered, r.Whole.Errors, kind)
		}
	}
	// These bytes belong to no request.
	r := run(t, closedPlan(serveRaw(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK", 1000), 3, 1))
	if r.Whole.Errors[unsolicited]+r.Whole.Errors[badResponse] == 0 {
		t.Errorf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	}
}
