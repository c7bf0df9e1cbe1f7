package http2

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/wire/exchange"

	"github.com/google/go-cmp/cmp"

	"adbuffer/internal/test/testsupport"
)

// The oracle is net/http's ClientConn: for the same exchange with the same server, both clients
// must have the same result.

// compared is the part of a result that can be compared.
type compared struct {
	Failed bool
	Status int
	Length int64
	Body   string // its length and hash
	Header http.Header
}

func describe(body []byte) string { return fmt.Sprintf("%d %x", len(body), sha256.Sum256(body)) }

// ours runs an exchange through this package.
func ours(conn *Conn, scheme string, r request) compared {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	ex.Request = exchange.Request{Method: r.method, Scheme: scheme, Authority: []byte("ssp.example"), Target: []byte(r.target), Fields: []byte(r.fields), Body: []byte(r.body)}
	ex.Times.Acquired = time.Now()
	ex.Deadline = ex.Times.Acquired.Add(time.Minute)
	if conn.Do(ex) != nil {
		return compared{Failed: true}
	}
	lines, err := textproto.NewReader(bufio.NewReader(strings.NewReader(string(ex.Response.Fields) + "\r\n"))).ReadMIMEHeader()
	if err != nil {
		panic(err)
	}
	return compared{false, ex.Response.Status, int64(ex.Response.ContentLength), describe(ex.Response.Body), stable(http.Header(lines))}
}

// theirs runs an exchange through net/http.
func theirs(conn *http.ClientConn, scheme string, r request) compared {
	var body io.Reader
	if r.body != "" || r.method == exchange.POST {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequest(r.method.String(), scheme+"://ssp.example"+r.target, body)
	if err != nil {
		panic(err)
	}
	for line := range strings.SplitSeq(r.fields, "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			req.Header.Add(name, value)
		}
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := conn.RoundTrip(req)
	if err != nil {
		return compared{Failed: true}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return compared{Failed: true}
	}
	v := compared{false, resp.StatusCode, resp.ContentLength, describe(b), stable(resp.Header)}
	if _, stated := resp.Header["Content-Length"]; !stated {
		v.Length = -1 // net/http invents a 0 in some cases
	}
	return v
}

// stable removes the fields that differ from response to response.
func stable(h http.Header) http.Header {
	delete(h, "Date")
	delete(h, "Trailer") // net/http takes it apart
	return h
}

// wilful responds as the request's query demands.
func wilful(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	h.Set("X-Got", fmt.Sprintf("%s %s %d %x", r.Method, r.Host, len(body), crc32.ChecksumIEEE(body)))
	h["X-Lines"] = r.Header["X-Line"]
	fields, _ := strconv.Atoi(q.Get("fields"))
	for i := range fields {
		h.Add("X-Field-"+strconv.Itoa(i%50), strings.Repeat("f", 100))
	}
	for range len(q.Get("interim")) {
		w.WriteHeader(http.StatusEarlyHints)
	}
	if q.Has("trailer") {
		h.Set("Trailer", "X-Trailer")
	}
	if q.Get("abort") == "head" {
		panic(http.ErrAbortHandler)
	}
	size, _ := strconv.Atoi(q.Get("size"))
	if q.Has("known") {
		h.Set("Content-Length", q.Get("size"))
	}
	status, _ := strconv.Atoi(q.Get("status"))
	w.WriteHeader(status)
	if q.Get("abort") == "body" {
		w.Write(make([]byte, 1000))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	response := []byte(strings.Repeat("0123456789abcdef", size/16+1)[:size])
	for len(response) > 0 {
		n := min(len(response), 5000)
		w.Write(response[:n])
		response = response[n:]
		if q.Has("flush") {
			http.NewResponseController(w).Flush()
		}
	}
	if q.Has("trailer") {
		h.Set("X-Trailer", "1")
	}
}

var oracleSizes = []int{0, 1, 16383, 16385, 65536, 1 << 20}

func TestSameAsNetHTTPWithAGoServer(t *testing.T) {
	s := tlsServer(t, http.HandlerFunc(wilful))
	opts := testOptions()
	opts.MaxResponseHeaderBytes = 1 << 20
	conn, _ := open(t, dialTLS(t, s.Listener.Addr().String()), opts)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true,
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP2(true)
	oracle, err := transport.NewClientConn(context.Background(), "https", s.Listener.Addr().String())
	testsupport.NoError(t, err)
	defer oracle.Close()
	compare := func(r request) {
		t.Helper()
		want, got := theirs(oracle, "https", r), ours(conn, "https", r)
		testsupport.Equal(t, cmp.Diff(want, got), "", "%[2]v %[3]s with %[4]d bytes (-net/http +ours):\n%[1]s", r.method, r.target, len(r.body))
	}
	for _, method := range []exchange.Method{exchange.GET, exchange.HEAD, exchange.POST} {
		for _, sent := range oracleSizes {
			for i, size := range oracleSizes {
				if method != exchange.POST && sent > 1 {
					continue
				}
				q := url.Values{"status": {"200"}, "size": {itoa(size)}}
				for j, key := range []string{"known", "flush", "trailer"} {
					if (i+sent)>>j&1 == 1 {
						q.Set(key, "1")
					}
				}
				if i%3 == 2 {
					q.Set("interim", "xxx")
				}
				compare(request{method: method, target: "/?" + q.Encode(), body: strings.Repeat("s", sent), fields: "Accept-Encoding: identity\r\nX-Line: a\r\nX-Line: b\r\n"})
			}
		}
		for _, query := range []string{
			"status=204", "status=304", "status=302", "status=404", "status=503&size=100", "status=204&interim=x", "status=200&size=10&trailer=1",
			"status=200&fields=200", "status=200&fields=240&size=10", "status=200&abort=head", "status=200&abort=body", "status=200&abort=body&known=1&size=5000",
			"status=200&size=0&known=1", "status=200&size=70000&known=1&trailer=1&interim=xxxxx",
		} {
			compare(request{method: method, target: "/?" + query})
		}
	}
	long := "X-Line: " + strings.Repeat("long", 6000) + "\r\n"
	compare(request{target: "/?status=200&size=1", fields: long + long}) // a head over one frame
}
