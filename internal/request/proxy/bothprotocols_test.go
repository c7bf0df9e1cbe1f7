//go:build !race

// These tests send hundreds of requests, one after the other. The race detector would make them take six times as long.

package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// bothRequest is a request that either protocol can carry.
type bothRequest struct {
	method, target, host string
	fields               [][2]string
	body                 string
	length               bool // Content-Length is stated
}

func randomRequest(random *rand.Rand) bothRequest {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	r := bothRequest{
		method: one("GET", "GET", "HEAD", "POST", "POST", "POST", "PUT", "OPTIONS", "get"),
		target: one("/fill", "/fill?", "/fill?a=b&c=%20d", "/fill/a?x", "/fill/b", "/fill/gone", "/fill?ssp=a&y=1", "/fill?ssp=zz", "/fill?ssp=a&ssp=b", "/nowhere", "/fill/../fill", "/fill%2fa", "/fill?x=1#f", "//fill", "/healthy"),
		host:   one("adbuffer.test", "other.example:8443", "[::1]:80", "a_b", "a/b", "a b"),
	}
	for range random.IntN(6) {
		r.fields = append(r.fields, [2]string{
			one("Accept", "X-Twice", "User-Agent", "X-Forwarded-For", "X-Device-Ip", "Cookie", "Authorization", "X-Adbuffer-Timeout-Ms", "X-Adbuffer-Ssp", "Referer", "X-Real-Ip", "Content-Type", "Via"),
			one("60000", "100000", "text/html, */*;q=0.1", "203.0.113.7, 10.0.0.1", "a=b; c=d", "", "Mozilla/5.0 (X11)", "a", strings.Repeat("v", 300)),
		})
	}
	if r.method == "POST" || random.IntN(6) == 0 {
		r.body = strings.Repeat("b", []int{0, 1, 100, 5000, 30_000, 30_001}[random.IntN(6)])
		r.length = random.IntN(2) == 0
	}
	return r
}

// result is the result of a request.
type result struct {
	status, source, body string
	outcomes             map[string]uint64
	atSSP                string
}

func (m *modeProxy) measure(ssp *rawSSP, send func() response) result {
	before := m.p.Snapshot().Outcomes
	a := send()
	res := result{status: a.status, source: a.source, body: a.body, atSSP: ssp.last(), outcomes: make(map[string]uint64)}
	for o, n := range m.p.Snapshot().Outcomes {
		if n -= before[o]; n > 0 {
			res.outcomes[o] = n
		}
	}
	return res
}

func (m *modeProxy) overHTTP1(t *testing.T, r bothRequest) response {
	c := m.dialTLS("http/1.1")
	defer c.Close()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, r.host)
	for _, f := range r.fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f[0], f[1])
	}
	switch {
	case r.length:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(r.body), r.body)
	case r.body != "":
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(r.body), r.body)
	default:
		b.WriteString("\r\n")
	}
	c.Write(b.Bytes())
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: r.method})
	testsupport.MustTrue(t, err == nil, "%+v: %v", r, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	testsupport.True(t, err == nil, "%+v: %v", r, err)
	return response{status: strconv.Itoa(res.StatusCode), source: res.Header.Get("X-Adbuffer-Source"), body: string(body)}
}

func (f *frames) send(id uint32, r bothRequest) response {
	fields := []string{":method", r.method, ":scheme", "https", ":authority", r.host, ":path", r.target}
	for _, one := range r.fields {
		fields = append(fields, strings.ToLower(one[0]), one[1])
	}
	if r.length {
		fields = append(fields, "content-length", strconv.Itoa(len(r.body)))
	}
	f.request(id, r.body == "", fields...)
	for body := []byte(r.body); len(body) > 0; {
		n := min(len(body), 10_000)
		f.framer.WriteData(id, n == len(body), body[:n])
		body = body[n:]
	}
	return f.responseTo(id)
}

// The same request leads to the same status, source, body and counters over HTTP/1 and HTTP/2. The
// SSP gets the same bytes, except for the protocol in Via and the position of Cookie.
func TestBothProtocolsLeadToTheSame(t *testing.T) {
	ssp := newRawSSP(t, func(request string) string {
		body := fmt.Sprintf(`{"bytes":%d}`, len(request))
		response := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))
		if !strings.HasPrefix(request, "HEAD ") {
			response += body
		}
		return response
	})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBodyBytes, o.HealthPath, o.RequestIDField = 30_000, "/healthy", "" }),
		bidder{name: "a", addr: ssp.addr}, bidder{name: "b", addr: ssp.addr}, bidder{name: "gone", addr: ssp.addr, removed: true})
	random := rand.New(rand.NewPCG(1, 2))
	f := m.frames(t)
	statuses := make(map[string]int)
	cases := uint32(80)
	if *full {
		cases = 150
	}
	for i := range cases {
		r := randomRequest(random)
		one := m.measure(ssp, func() response { return m.overHTTP1(t, r) })
		two := m.measure(ssp, func() response { return f.send(2*i+1, r) })
		statuses[one.status]++
		if one.status != two.status || one.source != two.source || one.body != two.body || !maps.Equal(one.outcomes, two.outcomes) {
			t.Errorf("%+v:\nHTTP/1 %s %s %v %.200s\nHTTP/2 %s %s %v %.200s", r, one.status, one.source, one.outcomes, one.body, two.status, two.source, two.outcomes, two.body)
		}
		a, b := likened(one.atSSP), likened(two.atSSP)
		testsupport.True(t, a == b, "%+v:\nthe SSP got %q\nover HTTP/2 %q", r, a, b)
	}
	for _, status := range []string{"200", "400", "404", "405", "413", "503"} {
		testsupport.True(t, statuses[status] != 0, "no request led to %s: %v", status, statuses)
	}
}

// likened returns a request without the parts that may differ.
func likened(text string) string {
	header, body, _ := strings.Cut(text, "\r\n\r\n")
	var lines, cookies []string
	for line := range strings.SplitSeq(header, "\r\n") {
		if v, ok := strings.CutPrefix(line, "Cookie: "); ok {
			cookies = append(cookies, v)
			continue
		}
		line = strings.Replace(line, "Via: 2 ", "Via: 1.1 ", 1)
		line = strings.Replace(line, "Via: 2.0 ", "Via: 1.1 ", 1)
		lines = append(lines, line)
	}
	return strings.Join(lines, "\r\n") + " | " + strings.Join(cookies, "; ") + " | " + body
}
