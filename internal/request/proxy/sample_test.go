package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	traffic "adbuffer/internal/wire/sample"
)

// sampling returns options that keep all requests of a test.
func sampling(o *proxy.Options) {
	o.Sample = traffic.Limits{Requests: 60_000, MaxAge: time.Hour, MaxBytes: 1 << 28}
	o.MaxBufferedBytes = 1 << 26
}

// kept waits until the sample has n requests, and returns them in the order in which they ended.
func (m *modeProxy) kept(n int) []*traffic.Request {
	m.t.Helper()
	testsupport.Eventually(m.t, "the requests have ended", func() bool {
		requests, _ := m.p.Sample().Held()
		return requests >= n
	})
	strata := m.p.Sample().Strata(time.Now())
	testsupport.MustTrue(m.t, len(strata) == 1 && strata[0].Seen == uint64(n) && len(strata[0].Requests) == n, "the sample has %+v", strata)
	return strata[0].Requests
}

func TestTheSampleHasRequestsWithoutSecretsAndTheirOutcomes(t *testing.T) {
	fill := newRawSSP(t, func(string) string {
		time.Sleep(2 * time.Millisecond)
		return "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nad!"
	})
	noBid := newRawSSP(t, func(string) string { return "HTTP/1.1 204 No Content\r\n\r\n" })
	m := newModeProxy(t, route.Waterfall, func(o *proxy.Options, rt *route.Route) {
		trustsLoopback(o, rt)
		sampling(o)
		o.MaxBodyBytes = 1 << 20
	}, bidder{name: "a", addr: noBid.addr}, bidder{name: "b", addr: fill.addr})
	send := func(path, fields, body string) {
		m.exchange(t, fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nX-Request-Id: id-1\r\n%sContent-Length: %d\r\n\r\n%s", path, fields, len(body), body))
	}
	send("/fill?pub=1&api_key=s3cret", "Cookie: s3cret\r\nAuthorization: s3cret\r\nX-Key: s3cret\r\nX-Forwarded-For: 203.0.113.9\r\n", `{"device":{"ip":"203.0.113.9"}}`)
	send("/fill/b", "", `{"x":"`+strings.Repeat("y", 69_992)+`"}`)
	send("/nowhere", "", "0123456789")
	send("/fill", "Content-Encoding: gzip\r\n", "203.0.113.9")
	send("/fill", "", `{"device":{"ip":"203.0.113.9"}`)
	all := m.kept(5)
	q := all[0]
	testsupport.Equal(t, string(q.Target), "/fill?pub=1&api_key=xxxxxx", "the target is %q")
	testsupport.Equal(t, string(q.Fields), "Host: x\r\nX-Request-Id: id-1\r\nCookie: xxxxxx\r\nAuthorization: xxxxxx\r\nX-Key: xxxxxx\r\nX-Forwarded-For: xxxxxxxxxxx\r\n\r\n", "the fields are %q")
	testsupport.True(t, q.HasBody && string(q.Body) == `{"device":{"ip":"203.0.113.0"}}`, "the body is %s", q.Body)
	testsupport.True(t, q.ID == "id-1" && q.Method == "POST" && q.Client.String() == "203.0.113.0" && q.Route == "r", "%+v", q)
	testsupport.MustEqual(t, len(q.Asked), 2, "%d SSPs")
	a, b := q.Asked[0], q.Asked[1]
	testsupport.True(t, a.SSP == "a" && a.Outcome == exchange.NoBid && a.Hold > 0, "the first SSP: %+v", a)
	testsupport.True(t, b.SSP == "b" && b.Outcome == exchange.Fill && b.Hold >= 2*time.Millisecond, "the second SSP: %+v", b)
	testsupport.True(t, !all[1].HasBody && all[1].Body == nil && all[1].BodyBytes == 70_000 && len(all[1].Asked) == 1, "a large body: %+v", all[1])
	testsupport.True(t, !all[2].HasBody && all[2].BodyBytes == 10 && all[2].Route == "none" && all[2].Asked == nil, "a body that was not read: %+v", all[2])
	for i, n := range map[int]int{3: 11, 4: 30} { // addresses in these bodies cannot be found
		testsupport.True(t, !all[i].HasBody && all[i].Body == nil && all[i].BodyBytes == n, "a coded or unreadable body: %+v", all[i])
	}
	_, bytes := m.p.Sample().Held()
	testsupport.True(t, m.p.Snapshot().BufferedBytes >= bytes && bytes > 1000, "%d buffered bytes, the sample holds %d", m.p.Snapshot().BufferedBytes, bytes)

	m.options.MaxUploads++ // any other setting
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.route}))
	m.kept(5)
	m.options.Sample.Requests--
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.route}))
	requests, _ := m.p.Sample().Held()
	testsupport.Equal(t, requests, 0, "%d requests after a change of the sample's settings")
	m.options.Sample.Requests = 0
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.route}))
	testsupport.True(t, m.p.Sample() == nil, "requests: 0 has a sample")
}

// Conditions do not read a body that came with a coding, so a replay must not read it either, though it was decoded for
// edits.
func TestTheSampleHasNoBodyThatWasDecoded(t *testing.T) {
	noBid := newRawSSP(t, func(string) string { return "HTTP/1.1 204 No Content\r\n\r\n" })
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
		sampling(o)
		rt.TruncateIP = true
	}, bidder{name: "a", addr: noBid.addr})
	zipped := testsupport.Gzip(`{"device":{"ip":"203.0.113.9"}}`)
	a, _ := m.exchange(t, fmt.Appendf(nil, "POST /fill HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zipped), zipped))
	q := m.kept(1)[0]
	testsupport.True(t, a.StatusCode == 204 && !q.HasBody && q.Body == nil && strings.Contains(string(q.Fields), "Content-Encoding: gzip\r\n"), "%d: %s%s", a.StatusCode, q.Fields, q.Body)
}

// The whole memory of the process is searched for the secrets of sampled requests. No variable may hold a secret, so
// they are made byte by byte of numbers.
func TestNoSecretOfASampledRequestIsInMemory(t *testing.T) {
	word := func(seed byte) []byte {
		b := make([]byte, 0, 24)
		for i := range byte(24) {
			b = append(b, 'a'+(seed+i*i*7)%26)
		}
		return b
	}
	secret, plain := byte(1), byte(2)
	address := func() netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, 150 + secret}) }
	m := forwarder(t, func(o *proxy.Options, rt *route.Route) {
		trustsLoopback(o, rt)
		sampling(o)
	})
	func() {
		c := m.dial()
		defer c.Close()
		message := []byte("GET /nowhere?key=") // no SSP gets it, since connections to SSPs have buffers too
		message = append(append(message, word(secret)...), " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Plain: "...)
		message = append(append(message, word(plain)...), "\r\nX-Forwarded-For: "...)
		message = address().AppendTo(message)
		for _, name := range []string{"Cookie", "Authorization", "X-Api-Key"} {
			message = append(append(message, "\r\n"+name+": "...), word(secret)...)
		}
		message = append(message, "\r\n\r\n"...)
		_, err := c.Write(message)
		testsupport.NoError(t, err)
		clear(message)
		_, err = io.Copy(io.Discard, c)
		testsupport.NoError(t, err)
	}()
	q := m.kept(1)[0]
	testsupport.True(t, q.Client.String() == "203.0.113.0", "the client is %v", q.Client)
	http.DefaultClient.CloseIdleConnections()
	testsupport.Eventually(t, "the buffers of the request have been collected", func() bool {
		for range 3 { // what a sync.Pool holds lives for two collections
			runtime.GC()
		}
		file := filepath.Join(t.TempDir(), "heap")
		f, err := os.Create(file)
		testsupport.NoError(t, err)
		debug.WriteHeapDump(f.Fd())
		testsupport.NoError(t, f.Close())
		dump, err := os.ReadFile(file)
		testsupport.NoError(t, err)
		defer clear(dump) // otherwise the next dump would have its content
		testsupport.MustTrue(t, bytes.Contains(dump, word(plain)), "the heap lacks the kept request: the search finds nothing")
		text, number := address().AppendTo(nil), address().As4()
		slices.Reverse(number[:]) // netip.Addr has a number, whose lowest byte is the first in memory
		return !bytes.Contains(dump, word(secret)) && !bytes.Contains(dump, text) && !bytes.Contains(dump, append(number[:], 0xff, 0xff))
	})
}
