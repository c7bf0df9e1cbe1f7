package sspsim

import (
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http2"
)

func TestZeroBehaviourBidsOnAConnectionThatStaysOpen(t *testing.T) {
	s := startWith(t, Behaviour{})
	c := dial(t, s)
	for range 3 {
		resp, body := c.ask("a")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || !json.Valid([]byte(body)) {
			t.Fatalf("got %d, %q", resp.StatusCode, body)
		}
	}
	if n := s.Counters(); n.Connections != 1 || n.Requests != 3 || n.Responded != 3 || n.ByStatus[200] != 3 || n.OpenConnections != 1 {
		t.Errorf("counters %+v", n)
	}
}

func TestBodyCarriesTheIDOfItsOwnRequest(t *testing.T) {
	post := func(body string) string {
		return fmt.Sprintf("POST /bid?x=1&cb=query HTTP/1.1\r\nHost: a\r\nX-Request-Id: head\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	s := startWith(t, Behaviour{})
	c := dial(t, s)
	for _, v := range []struct{ request, id string }{
		{post(`{"imp":[{"id":"imp"}],"id":"bid\u0022<1>"}`), `bid"<1>`},
		{post(`{"imp":[{"id":"imp"}]}`), "query"},
		{"GET /bid HTTP/1.1\r\nHost: a\r\nx-request-ID: he\"ad\r\n\r\n", `he"ad`},
		{"GET /bid?cb HTTP/1.1\r\nHost: a\r\n\r\n", "0"},
	} {
		c.send(v.request)
		_, body := c.response("GET")
		var doc struct{ ID string }
		if err := json.Unmarshal([]byte(body), &doc); err != nil || doc.ID != v.id {
			t.Errorf("%q: body %s (%v), want the id %q", v.request, body, err, v.id)
		}
	}
	s.mustSet(t, Behaviour{Response: Response{Kind: VAST}})
	c.send("GET /bid HTTP/1.1\r\nHost: a\r\nX-Request-Id: <&\">\r\n\r\n")
	resp, body := c.response("GET")
	var vast struct {
		Ad struct {
			ID string `xml:"id,attr"`
		}
	}
	if err := xml.Unmarshal([]byte(body), &vast); err != nil || vast.Ad.ID != `<&">` || resp.Header.Get("Content-Type") != "application/xml" {
		t.Errorf("VAST %s (%v), want the id", body, err)
	}
}

func TestEchoNamesEverythingTheRequestCarried(t *testing.T) {
	s := startWith(t, Behaviour{Response: Response{Echo: true, NoBid: Every(2), Kind: Raw, Size: Size{Constant: 40}}})
	c := dial(t, s)
	body := `{"id":"bid"}`
	for _, status := range []int{200, 204} {
		c.send(fmt.Sprintf("POST /bid?cb=q%%31 HTTP/1.1\r\nHost: a\r\nX-Request-Id: head\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		resp, got := c.response("POST")
		h := resp.Header
		if resp.StatusCode != status || h.Get("X-Request-Id") != "head" || h.Get("X-Echo-Cb") != "q%31" || h.Get("X-Echo-Id") != "bid" {
			t.Errorf("status %d, header %v", resp.StatusCode, h)
		}
		testsupport.True(t, status != 200 || len(got) == 40 && strings.HasPrefix(got, "bid"), "raw body %q does not start with the id", got)
	}
}

func TestPipelinedRequestsGetResponsesInOrder(t *testing.T) {
	s := startWith(t, Behaviour{Response: Response{Size: Size{P50: 500, P95: 20000, Max: 100000}, Chunked: Every(3)}})
	c := dial(t, s)
	const n = 200
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "GET /bid?cb=no-%d. HTTP/1.1\r\nHost: a\r\n\r\n", i)
	}
	go func() { _, _ = io.WriteString(c.c, all.String()) }()
	for i := range n {
		if _, body := c.response("GET"); !strings.Contains(body, fmt.Sprintf(`"no-%d."`, i)) {
			t.Fatalf("response %d is %.100q", i, body)
		}
	}
	if got := s.Counters(); got.MaxInFlight != 1 || got.InFlight != 0 {
		t.Errorf("in flight %d, at most %d; want requests of one connection one after the other", got.InFlight, got.MaxInFlight)
	}
}

func TestPipelineOverlapLetsRequestsReadTogetherWaitTogether(t *testing.T) {
	const latency, n = 500 * time.Millisecond, 100
	s := startWith(t, Behaviour{Latency: Constant(latency), Connections: Connections{PipelineOverlap: true}})
	c := dial(t, s)
	begin := time.Now()
	c.send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", n))
	for range n {
		c.response("GET")
	}
	// Handled one after the other they would take 50 s at least.
	if took := time.Since(begin); took < latency || took >= n*latency {
		t.Errorf("%d requests took %v, want about %v", n, took, latency)
	}
}

func TestConnectionIsKeptAsTheRequestAsks(t *testing.T) {
	s := startWith(t, Behaviour{})
	for _, v := range []struct {
		request, connection string
		open                bool
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", true},
		{"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", "close", false},
		{"GET / HTTP/1.0\r\n\r\n", "", false},
		{"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "keep-alive", true},
	} {
		c := dial(t, s)
		c.send(v.request)
		resp, _ := c.response("GET")
		// ReadResponse removes Connection: close from the header.
		connection := resp.Header.Get("Connection")
		if resp.Close && resp.ProtoAtLeast(1, 1) {
			connection = "close"
		}
		if connection != v.connection {
			t.Errorf("%q: Connection %q, want %q", v.request, connection, v.connection)
		}
		if v.open {
			c.wantOpen()
		} else {
			c.wantEnd()
		}
	}
}

func TestMaxRequestsClosesWithAndWithoutSayingSo(t *testing.T) {
	for _, announce := range []bool{false, true} {
		s := startWith(t, Behaviour{Connections: Connections{MaxRequests: 3, Announce: announce}})
		c := dial(t, s)
		c.send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 5))
		for i := range 3 {
			if resp, _ := c.response("GET"); resp.Close != (announce && i == 2) {
				t.Errorf("announce %v: response %d says close: %v", announce, i, resp.Close)
			}
		}
		c.wantEnd()
		testsupport.Equal(t, s.Counters().Requests, 3, "announce %[2]v: %[1]d requests processed", announce)
	}
}

func TestIdleTimeoutClosesOnlyAConnectionWithoutARequest(t *testing.T) {
	latency := Constant(300 * time.Millisecond)
	s := startWith(t, Behaviour{Latency: latency})
	c := dial(t, s)
	c.get("slow")
	s.await(t, "the request has arrived", func(c Counters) bool { return c.InFlight == 1 })
	s.mustSet(t, Behaviour{Latency: latency, Connections: Connections{IdleTimeout: Duration(30 * time.Millisecond)}})
	if _, body := c.response("GET"); !strings.Contains(body, "slow") {
		t.Fatalf("response %q", body)
	}
	c.wantEnd()
	s.await(t, "one connection is closed as idle", func(c Counters) bool { return c.IdleClosed == 1 })
}

func TestSetHoldsForConnectionsThatAreOpenAndIdle(t *testing.T) {
	s := startWith(t, Behaviour{})
	c := dial(t, s)
	c.wantOpen()
	s.mustSet(t, Behaviour{Response: Response{NoBid: Always}})
	if resp, _ := c.ask("x"); resp.StatusCode != 204 {
		t.Fatalf("status %d after Set, want 204", resp.StatusCode)
	}
	s.mustSet(t, Behaviour{Connections: Connections{IdleTimeout: Duration(20 * time.Millisecond)}})
	c.wantEnd()
}

func TestResponseToHEADHasTheLengthAndNoBody(t *testing.T) {
	c := dial(t, startWith(t, Behaviour{Response: Response{Kind: Raw, Size: Size{Constant: 1234}}}))
	c.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, body := c.response("HEAD"); resp.ContentLength != 1234 || body != "" {
		t.Errorf("Content-Length %d and %q", resp.ContentLength, body)
	}
	if _, body := c.ask("next"); len(body) != 1234 {
		t.Errorf("body of %d bytes, want 1234", len(body))
	}
}

func TestExpectGetsAResponseBeforeTheBody(t *testing.T) {
	c := dial(t, startWith(t, Behaviour{}))
	c.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 12\r\n\r\n")
	if resp, _ := c.response("POST"); resp.StatusCode != 100 {
		t.Fatalf("status %d, want 100", resp.StatusCode)
	}
	c.send(`{"id":"abc"}`)
	if _, body := c.response("POST"); !strings.Contains(body, "abc") {
		t.Errorf("body %q", body)
	}
}

func TestNoBidHasThreeForms(t *testing.T) {
	for _, v := range []struct {
		response Response
		status   int
		body     string
	}{
		{Response{}, 204, ""},
		{Response{NoBidForm: NoBidEmpty}, 200, ""},
		{Response{NoBidForm: NoBidDocument}, 200, `{"id":"q","nbr":0}`},
		{Response{NoBidForm: NoBidDocument, Kind: VAST}, 200, `<?xml version="1.0" encoding="UTF-8"?><VAST version="4.2"></VAST>`},
		{Response{NoBidForm: NoBidDocument, Kind: Raw}, 200, ``},
	} {
		v.response.NoBid, v.response.Size = Always, Size{Constant: 500}
		c := dial(t, startWith(t, Behaviour{Response: v.response}))
		resp, body := c.ask("q")
		if resp.StatusCode != v.status || body != v.body {
			t.Errorf("%+v: %d %q, want %d %q", v.response, resp.StatusCode, body, v.status, v.body)
		}
		testsupport.True(t, v.status != 204 || resp.Header.Get("Content-Length") == "", "204 with Content-Length")
		again, _ := c.ask("again")
		testsupport.Equal(t, again.StatusCode, v.status, "the second status is %d")
	}
}

func TestEmptyGzipDecodesToNothing(t *testing.T) {
	c := dial(t, startWith(t, Behaviour{Response: Response{Kind: EmptyGzip, Size: Size{Constant: 4010}}}))
	_, body := c.ask("q")
	z, err := gzip.NewReader(strings.NewReader(body))
	testsupport.NoError(t, err)
	decoded, err := io.ReadAll(z)
	testsupport.True(t, len(body) == 4010 && len(decoded) == 0 && errors.Is(err, io.ErrUnexpectedEOF), "%d bytes decode to %q, %v", len(body), decoded, err)
}

func TestARequestMayGetNoResponse(t *testing.T) {
	none := func(q *Request) { q.Respond.Code = NoResponse }
	c := dial(t, start(t, Options{OnRequest: none}))
	c.get("q")
	_, err := c.rest()
	testsupport.True(t, errors.Is(err, syscall.ECONNRESET), "HTTP/1: %v", err)
	a := dialH2C(t, start(t, Options{Protocol: H2C, OnRequest: none})).ask(1)
	testsupport.True(t, a.status == "" && a.reset != nil && *a.reset == http2.ErrCodeInternal, "HTTP/2: %+v", a)
}
