package proxy_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"

	"adbuffer/internal/test/testsupport"
)

var uuidv7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// ownIDs is an SSP that writes a request id of its own into its responses.
func ownIDs(name string) bidder {
	return bidder{name: name, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "theirs")
		w.Header().Set("X-Got", r.Header.Get("X-Request-Id"))
		w.Write([]byte("{}"))
	}}
}

func trustsLoopback(o *proxy.Options, _ *route.Route) {
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// idOf returns the one id in the header of a response.
func idOf(t *testing.T, res *http.Response) string {
	t.Helper()
	ids := res.Header.Values("X-Request-Id")
	testsupport.MustTrue(t, len(ids) == 1, "ids in the header of a %d: %q", res.StatusCode, ids)
	return ids[0]
}

func TestEveryResponseHasTheIDOfItsRequest(t *testing.T) {
	m := newModeProxy(t, route.Single, trustsLoopback, ownIDs("a"))
	for _, c := range []struct {
		method, target string
		fields         []string
		status         int
		want           string // "" = a new one
	}{
		{"GET", "/fill", []string{"X-Request-Id: edge-1"}, 200, "edge-1"},
		{"GET", "/fill", []string{"X-Request-Id: edge 1"}, 200, ""},
		{"GET", "/fill", nil, 200, ""},
		{"HEAD", "/fill", []string{"X-Request-Id: edge-2"}, 200, "edge-2"},
		{"GET", "/elsewhere", []string{"X-Request-Id: edge-3"}, 404, "edge-3"},
		{"PUT", "/fill", []string{"X-Request-Id: edge-4"}, 405, "edge-4"},
		{"GET", "/fill", []string{"X-Adbuffer-Timeout-Ms: soon", "X-Request-Id: edge-5"}, 400, "edge-5"},
		{"POST", "/fill", []string{"X-Request-Id: edge-6", "Content-Length: 300000"}, 413, "edge-6"},
		{"POST", "/fill", []string{"X-Request-Id: edge-7", "Expect: 100-continue", "Content-Length: 300000"}, 413, "edge-7"},
		{"GET", "/fill", []string{"broken line"}, 400, ""},
		{"GET", "/fi\x01ll", nil, 400, ""},
	} {
		res, body := m.do(c.method, c.target, c.fields...)
		id := idOf(t, res)
		if res.StatusCode != c.status || c.want != "" && id != c.want || c.want == "" && !uuidv7.MatchString(id) {
			t.Errorf("%s %s %q: %d with id %s, want %d with %q", c.method, c.target, c.fields, res.StatusCode, id, c.status, c.want)
		}
		testsupport.Equal(t, res.Header.Get("X-Got"), "", "the SSP got the id %q")
		if c.status < 400 {
			continue
		}
		var own struct{ Error, ID string }
		err := json.Unmarshal([]byte(body), &own)
		testsupport.True(t, err == nil && own.ID == id, "the body of a %d is %s (%v), want the id %s", c.status, body, err, id)
	}
}

func TestIDsOfUntrustedClientsAreReplaced(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, ownIDs("a"))
	res, _ := m.do("GET", "/fill", "X-Request-Id: edge-1")
	id := idOf(t, res)
	testsupport.True(t, uuidv7.MatchString(id), "the response has the id %s", id)
}

func TestRequestsHaveNoIDWhereThereIsNoFieldForIt(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.RequestIDField = "" }, respondsWith("a", 200))
	for _, target := range []string{"/fill", "/elsewhere"} {
		res, body := m.do("GET", target, "X-Request-Id: edge-1")
		ids := res.Header.Values("X-Request-Id")
		testsupport.True(t, len(ids) == 0 && !strings.Contains(body, `"id"`), "%s: ids %q, body %s", target, ids, body)
	}
}
