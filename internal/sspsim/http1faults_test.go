package sspsim

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func withFaults(f Faults) Behaviour { return Behaviour{Faults: f} }

// wantFault checks that the fault was counted once.
func (s *SSP) wantFault(t testing.TB, key string) {
	t.Helper()
	s.await(t, "fault "+key, func(c Counters) bool { return c.Faults[key] == 1 })
	if n := s.Counters(); len(n.Faults) != 1 {
		t.Errorf("faults %v, want %s alone", n.Faults, key)
	}
}

func TestHangAcceptsAndNeverResponds(t *testing.T) {
	s := startWith(t, withFaults(Faults{Hang: Always}))
	c := dial(t, s)
	c.get("x")
	s.wantFault(t, "hang")
	_ = c.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if text, err := c.rest(); text != "" || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %q and %v, want silence", text, err)
	}
	if n := s.Counters(); n.Requests != 0 || n.OpenConnections != 1 {
		t.Errorf("counters %+v", n)
	}
	c.c.Close()
	s.await(t, "end of the hung connection", func(c Counters) bool { return c.OpenConnections == 0 })
}

func TestStallReadsTheRequestAndNeverResponds(t *testing.T) {
	s := startWith(t, withFaults(Faults{Stall: Every(2)}))
	c := dial(t, s)
	c.wantOpen()
	c.get("x")
	s.await(t, "request in flight", func(c Counters) bool { return c.Requests == 2 && c.InFlight == 1 })
	_ = c.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if text, err := c.rest(); text != "" || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %q and %v, want silence", text, err)
	}
	c.c.Close()
	s.await(t, "end of the request", func(c Counters) bool { return c.InFlight == 0 && c.Responded == 1 })
}

func TestResetSendsRSTInsteadOfTheResponse(t *testing.T) {
	s := startWith(t, withFaults(Faults{Reset: Every(2)}))
	c := dial(t, s)
	c.wantOpen()
	c.get("x")
	if text, err := c.rest(); text != "" || !isReset(err) {
		t.Errorf("got %q and %v, want a connection reset", text, err)
	}
	s.wantFault(t, "reset")
}

func TestCutHeadEndsInsideTheHead(t *testing.T) {
	s := startWith(t, withFaults(Faults{CutHead: Always}))
	c := dial(t, s)
	c.get("x")
	text, err := c.rest()
	if err != nil || !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || strings.Contains(text, "\r\n\r\n") {
		t.Errorf("got %q and %v, want half a head", text, err)
	}
	s.wantFault(t, "cut_head")
	if n := s.Counters().Responded; n != 0 {
		t.Errorf("%d responses counted as whole", n)
	}
}

func TestCutBodyEndsInsideTheBody(t *testing.T) {
	for _, chunked := range []Chance{{}, Always} {
		s := startWith(t, Behaviour{Response: Response{Chunked: chunked, NoBid: Always}, Faults: Faults{CutBody: Always}})
		c := dial(t, s)
		c.get("x")
		resp, err := http.ReadResponse(c.br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF || len(body) == 0 {
			t.Errorf("chunked %v: body %q and %v, want half of it", chunked, body, err)
		}
		s.wantFault(t, "cut_body")
	}
	s := startWith(t, withFaults(Faults{CutBody: Always}))
	c := dial(t, s)
	c.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
	if text, err := c.rest(); err != nil || strings.Contains(text, "\r\n\r\n") {
		t.Errorf("HEAD: got %q and %v, want half a head", text, err)
	}
}

func TestStatusFaultCarriesRetryAfter(t *testing.T) {
	for _, v := range []struct {
		status Status
		code   int
		retry  string
	}{
		{Status{}, 503, ""},
		{Status{Code: 429, RetryAfter: Duration(1500 * time.Millisecond)}, 429, "2"},
		{Status{Code: 302}, 302, ""},
		{Status{Code: 304}, 304, ""},
		{Status{Code: 204, RetryAfter: Duration(time.Minute)}, 204, "60"},
	} {
		v.status.Chance = Always
		s := startWith(t, Behaviour{Response: Response{Echo: true}, Faults: Faults{Status: v.status}})
		c := dial(t, s)
		c.get("me")
		resp, body := c.response("GET")
		if resp.StatusCode != v.code || resp.Header.Get("Retry-After") != v.retry || (body == "") != (v.code == 204 || v.code == 304) || resp.Header.Get("X-Echo-Cb") != "me" {
			t.Errorf("%+v: %d, %v, %q", v.status, resp.StatusCode, resp.Header, body)
		}
		c.get("again")
		c.response("GET")
	}
	c := dial(t, startWith(t, withFaults(Faults{Status: Status{Chance: Always, RetryAfter: Duration(time.Hour), RetryAfterDate: true}})))
	c.get("me")
	resp, _ := c.response("GET")
	if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err != nil || time.Until(at) < 58*time.Minute || time.Until(at) > time.Hour {
		t.Errorf("Retry-After %q (%v), want a date in an hour", resp.Header.Get("Retry-After"), err)
	}
}

func TestDripSendsTheBodyInPieces(t *testing.T) {
	const pause, pieces = 5 * time.Millisecond, 20
	s := startWith(t, Behaviour{Response: Response{Kind: Raw, Size: Size{Constant: 100}},
		Faults: Faults{Drip: Drip{Chance: Always, Bytes: 100 / pieces, Pause: Duration(pause)}}})
	c := dial(t, s)
	begin := time.Now()
	c.get("x")
	if _, body := c.response("GET"); len(body) != 100 {
		t.Errorf("body of %d bytes", len(body))
	}
	if took := time.Since(begin); took < (pieces-1)*pause {
		t.Errorf("took %v, want at least %v", took, (pieces-1)*pause)
	}
	s.wantFault(t, "drip")
}

func TestUnsolicitedResponseComesOnAnIdleConnection(t *testing.T) {
	s := startWith(t, withFaults(Faults{Unsolicited: Unsolicited{Chance: Always}}))
	c := dial(t, s)
	c.get("x")
	c.response("GET")
	resp, body := c.response("GET") // to no request of this client
	if resp.StatusCode != 200 || body != Poison {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	s.wantFault(t, "unsolicited")
	s.mustSet(t, Behaviour{})
	c.wantOpen()
}

func TestUnsolicitedResponseIsPutOffByARequest(t *testing.T) {
	s := startWith(t, withFaults(Faults{Unsolicited: Unsolicited{Chance: Every(2), Delay: Duration(5 * time.Minute)}}))
	c := dial(t, s)
	c.wantOpen()
	c.wantOpen()
	s.await(t, "end of the request", func(c Counters) bool { return c.InFlight == 0 })
	due := s.openConns()[0].poisonAt.Load()
	c.wantOpen()
	s.await(t, "end of the request", func(c Counters) bool { return c.InFlight == 0 })
	if later := s.openConns()[0].poisonAt.Load(); due == 0 || later <= due {
		t.Errorf("due at %d, then at %d; want later", due, later)
	}
}

func TestLeftoverIsAWholeResponseBehindTheBody(t *testing.T) {
	s := startWith(t, Behaviour{Response: Response{NoBid: Always}, Faults: Faults{Leftover: Every(2)}})
	c := dial(t, s)
	c.get("x")
	if resp, _ := c.response("GET"); resp.StatusCode != 204 {
		t.Fatalf("first response %d", resp.StatusCode)
	}
	c.get("mine")
	if _, body := c.response("GET"); !strings.Contains(body, "mine") {
		t.Errorf("body %q", body)
	}
	if _, body := c.response("GET"); body != Poison {
		t.Errorf("leftover %q", body)
	}
	s.wantFault(t, "leftover")
}

func TestOversizedHeadAndBody(t *testing.T) {
	s := startWith(t, withFaults(Faults{OversizedHead: Oversized{Chance: Always, Bytes: 200_000}}))
	c := dial(t, s)
	c.get("x")
	resp, _ := c.response("GET")
	n := 0
	for _, v := range resp.Header["X-Pad"] {
		n += len(v)
	}
	if n != 200_000 {
		t.Errorf("padding of %d bytes", n)
	}
	s.wantFault(t, "oversized_head")

	s = startWith(t, withFaults(Faults{OversizedBody: Oversized{Chance: Always}}))
	c = dial(t, s)
	c.get("x")
	if _, body := c.response("GET"); len(body) != 4<<20 {
		t.Errorf("body of %d bytes, want 4 MiB", len(body))
	}
	if n := s.Counters().ResponseBodyBytes; n != 4<<20 {
		t.Errorf("counted %d body bytes", n)
	}
}

func TestMalformedResponsesBreakOneRuleEach(t *testing.T) {
	head := func(want string) func(head, body string) bool {
		return func(head, _ string) bool { return strings.Contains(head, want) }
	}
	checks := map[Malformation]func(head, body string) bool{
		ObsFold: head("X-Folded: one\r\n two\r\n"),
		BareLF: func(head, _ string) bool {
			return !strings.Contains(head, "\r") && strings.Contains(head, "\nContent-Length: ")
		},
		NulInValue:    head("X-Nul: a\x00b\r\n"),
		SpaceInName:   head("X-Space : a\r\n"),
		BadStatusLine: func(head, _ string) bool { return strings.HasPrefix(head, "HTTP/1.1 OK\r\n") },
		TwoLengths:    func(head, _ string) bool { return strings.Count(head, "Content-Length: ") == 2 },
		LengthAndTE: func(head, body string) bool {
			return strings.Contains(head, "Content-Length: ") && strings.Contains(head, "Transfer-Encoding: chunked\r\n") &&
				strings.HasSuffix(body, "\r\n0\r\n\r\n")
		},
		BadChunk: func(head, body string) bool {
			return strings.Contains(head, "Transfer-Encoding: chunked\r\n") && strings.HasPrefix(body, "zz\r\n")
		},
	}
	if len(checks) != len(http1Malformations) {
		t.Fatalf("%d of %d malformations checked", len(checks), len(http1Malformations))
	}
	for kind, ok := range checks {
		s := startWith(t, withFaults(Faults{Malformed: Malformed{Chance: Always, Kinds: []Malformation{kind, H2Uppercase}}}))
		c := dial(t, s)
		// The next request asks for a close: the connection still serves it, and then ends.
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		text, err := c.rest()
		end := []byte("\r\n\r\n")
		if kind == BareLF {
			end = []byte("\n\n")
		}
		first, rest, _ := bytes.Cut([]byte(text), end)
		body, _, _ := strings.Cut(string(rest), "HTTP/1.1 ")
		if err != nil || !ok(string(first)+string(end), body) {
			t.Errorf("%s: got %q and %v", kind, text, err)
		}
		if n := s.Counters(); n.Responded != 2 || n.Faults["malformed"] != 2 {
			t.Errorf("%s: counters %+v", kind, n)
		}
	}
}

func TestMalformedOfTheOtherProtocolIsNeverDrawn(t *testing.T) {
	s := startWith(t, withFaults(Faults{Malformed: Malformed{Chance: Always, Kinds: []Malformation{H2NoStatus}},
		RefuseStream: Always, GoAway: GoAway{Chance: Always}, ResetStream: ResetStream{Chance: Always}}))
	dial(t, s).wantOpen()
	if n := s.Counters().Faults; len(n) != 0 {
		t.Errorf("faults %v", n)
	}
}

func TestEveryNthRequestFailsAcrossConnections(t *testing.T) {
	s := startWith(t, withFaults(Faults{Status: Status{Chance: Every(3)}}))
	a, b := dial(t, s), dial(t, s)
	for i := 1; i <= 12; i++ {
		c := a
		if i%2 == 0 {
			c = b
		}
		c.get("x")
		want := 200
		if i%3 == 0 {
			want = 503
		}
		if resp, _ := c.response("GET"); resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
}

func TestShareOfTheRequestsFailsTheSameWayForOneSeed(t *testing.T) {
	run := func(seed uint64) (pattern string) {
		s := start(t, Options{Seed: seed, Behaviour: withFaults(Faults{Status: Status{Chance: Share(0.3)}})})
		c := dial(t, s)
		for range 200 {
			c.get("x")
			resp, _ := c.response("GET")
			pattern += resp.Status[:1]
		}
		return pattern
	}
	a := run(7)
	if n := strings.Count(a, "5"); n < 30 || n > 95 {
		t.Errorf("%d of 200 requests failed, want about 60", n)
	}
	if run(7) != a {
		t.Error("the same seed failed other requests")
	}
	if run(8) == a {
		t.Error("another seed failed the same requests")
	}
}
