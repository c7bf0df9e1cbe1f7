package sspsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http2"
)

func startH2C(t testing.TB, b Behaviour) *SSP {
	return start(t, Options{Protocol: H2C, Behaviour: b})
}

func TestHTTP2RespondsToEveryStreamWithItsOwnID(t *testing.T) {
	s := startH2C(t, Behaviour{Response: Response{Size: Size{Constant: 3000}, Echo: true}})
	h := dialH2C(t, s)
	for id := uint32(1); id < 20; id += 2 {
		a := h.ask(id)
		if a.status != "200" || len(a.body) != 3000 || !json.Valid([]byte(a.body)) ||
			!strings.Contains(a.body, fmt.Sprintf(`"s%d"`, id)) || a.fields["x-echo-cb"] != fmt.Sprintf("s%d", id) ||
			a.fields["content-length"] != "3000" {
			t.Fatalf("stream %d: %+v", id, a)
		}
	}
	if n := s.Counters(); n.Requests != 10 || n.Responded != 10 || n.ByStatus[200] != 10 {
		t.Errorf("counters %+v", n)
	}
}

// A response must not wait for the rest of a frame that has arrived in part.
func TestHTTP2RespondsWhileTheNextFrameIsIncomplete(t *testing.T) {
	h := dialH2C(t, startH2C(t, Behaviour{}))
	var request bytes.Buffer
	wire := h.framer
	h.framer = http2.NewFramer(&request, nil)
	h.get(1)
	h.framer = wire
	h.send(request.String() + "\x00\x00")
	testsupport.Equal(t, h.response(1).status, "200", "status %s")
}

func TestHTTP2StreamLimitIsAnnouncedChangedAndKept(t *testing.T) {
	s := startH2C(t, Behaviour{Faults: Faults{Stall: Always}, Connections: Connections{MaxStreams: 2}})
	h, first := newH2Client(dial(t, s))
	if v, ok := first.Value(http2.SettingMaxConcurrentStreams); !ok || v != 2 {
		t.Fatalf("announced %d, want 2", v)
	}
	h.get(1)
	h.get(3)
	if a := h.ask(5); a.reset == nil || *a.reset != http2.ErrCodeRefusedStream {
		t.Fatalf("stream 5: %+v, want REFUSED_STREAM", a)
	}
	h.must(h.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	s.await(t, "the reset", func(c Counters) bool { return c.ResetsSeen == 1 && c.InFlight == 1 })
	if n := s.Counters(); n.Unprocessed != 1 || n.Requests != 2 || n.MaxInFlight != 2 {
		t.Errorf("counters %+v", n)
	}
	for _, v := range []struct {
		set  int
		want uint32
	}{{-1, 0}, {0, 250}, {7, 7}} {
		s.mustSet(t, Behaviour{Faults: Faults{Stall: Always}, Connections: Connections{MaxStreams: v.set}})
		for {
			f, ok := h.frame().(*http2.SettingsFrame)
			if ok && !f.IsAck() {
				if got, _ := f.Value(http2.SettingMaxConcurrentStreams); got != v.want {
					t.Errorf("announced %d, want %d", got, v.want)
				}
				break
			}
		}
	}
	// The old limit is in force until the new one is acknowledged.
	h.get(7)
	if a := h.ask(9); a.reset == nil {
		t.Errorf("a third stream was accepted under a limit of 2")
	}
	for range 3 { // 0, 250 and 7
		h.must(h.framer.WriteSettingsAck())
	}
	for id := uint32(11); id <= 21; id += 2 {
		h.get(id)
	}
	if a := h.response(21); a.reset == nil {
		t.Errorf("an eighth stream was accepted under a limit of 7")
	}
}

func TestHTTP2DeliversUnderTheSmallestWindows(t *testing.T) {
	s := startH2C(t, Behaviour{Response: Response{Kind: Raw, Size: Size{Constant: 200_000}}})
	h := dialH2C(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	if a := h.ask(1); len(a.body) != 200_000 {
		t.Errorf("body of %d bytes", len(a.body))
	}
	// A window of 0 delays the body. It delays neither the header nor other streams.
	h.must(h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	h.get(3)
	if f, ok := h.next().(*http2.MetaHeadersFrame); !ok || f.StreamID != 3 {
		t.Fatalf("got %v, want the head of stream 3", f)
	}
	s.mustSet(t, Behaviour{Response: Response{NoBid: Always}})
	if a := h.ask(5); a.status != "204" {
		t.Errorf("stream 5: %+v", a)
	}
	h.must(h.framer.WriteWindowUpdate(3, 200_000))
	if a := h.response(3); len(a.body) != 200_000 {
		t.Errorf("body of %d bytes", len(a.body))
	}
}

func TestHTTP2MaxRequestsClosesWithAndWithoutSayingSo(t *testing.T) {
	for _, announce := range []bool{false, true} {
		s := startH2C(t, Behaviour{})
		h := dialH2C(t, s)
		h.ask(1) // before there is a limit
		s.mustSet(t, Behaviour{Latency: Constant(20 * time.Millisecond), Connections: Connections{MaxRequests: 2, Announce: announce}})
		h.get(3)
		h.get(5)
		h.get(7)
		goAway, responded := false, 0
		for responded < 2 {
			switch f := h.next().(type) {
			case *http2.GoAwayFrame:
				goAway = true
				testsupport.True(t, f.LastStreamID == 5 && f.ErrCode == http2.ErrCodeNo, "got %v", f)
			case *http2.MetaHeadersFrame:
			case *http2.DataFrame:
				if f.StreamEnded() {
					responded++
				}
			}
		}
		testsupport.Equal(t, goAway, announce, "GOAWAY %v")
		h.wantEnd()
		if n := s.Counters(); n.Requests != 3 || n.Responded != 3 || n.Unprocessed != 1 {
			t.Errorf("counters %+v", n)
		}
	}
}

func TestHTTP2IdleTimeoutClosesWithAndWithoutSayingSo(t *testing.T) {
	for _, announce := range []bool{false, true} {
		s := startH2C(t, Behaviour{Latency: Constant(100 * time.Millisecond),
			Connections: Connections{IdleTimeout: Duration(30 * time.Millisecond), Announce: announce}})
		h := dialH2C(t, s)
		if a := h.ask(1); a.status != "200" {
			t.Fatalf("response %+v", a)
		}
		if announce {
			if f, ok := h.next().(*http2.GoAwayFrame); !ok || f.LastStreamID != 1 {
				t.Errorf("got %v, want GOAWAY", f)
			}
		}
		h.wantEnd()
		testsupport.Equal(t, s.Counters().IdleClosed, 1, "%d idle connections closed")
	}
}

func TestHTTP2ResponseShapes(t *testing.T) {
	s := startH2C(t, Behaviour{Response: Response{Trailers: Always, Interim: Always, Cookies: Always, Size: Size{Constant: 300},
		Headers: []Field{{"Alt-Svc", "clear"}}}})
	h := dialH2C(t, s)
	a := h.ask(1)
	if len(a.interim) != 1 || a.interim[0] != "103" || a.status != "200" || len(a.body) != 300 ||
		a.fields["x-sim-trailer"] != "done" || a.fields["set-cookie"] == "" || a.fields["alt-svc"] != "clear" {
		t.Errorf("response %+v", a)
	}
	h.headers(3, true, ":method", "HEAD", ":scheme", "http", ":authority", "ssp", ":path", "/")
	if a := h.response(3); a.body != "" || a.fields["content-length"] != "300" {
		t.Errorf("HEAD: %+v", a)
	}
}

func TestHTTP2RecordsTheRequestAsItCame(t *testing.T) {
	s := start(t, Options{Protocol: H2C, Record: 2})
	h := dialH2C(t, s)
	h.headers(1, false, ":method", "POST", ":authority", "ssp", ":scheme", "http", ":path", "/bid?x=%2f&cb=7",
		"x-b", "1", "x-a", "2", "x-b", "3")
	h.must(h.framer.WriteData(1, false, []byte(`{"id":`)))
	h.must(h.framer.WriteDataPadded(1, false, []byte(`"q"}`), make([]byte, 50)))
	h.headers(1, true, "x-trailer", "t")
	if a := h.response(1); !strings.Contains(a.body, `"q"`) {
		t.Errorf("body %q", a.body)
	}
	r := s.Requests()[0]
	want := []Field{{":method", "POST"}, {":authority", "ssp"}, {":scheme", "http"}, {":path", "/bid?x=%2f&cb=7"},
		{"x-b", "1"}, {"x-a", "2"}, {"x-b", "3"}}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) || string(r.Body) != `{"id":"q"}` || r.Target != "/bid?x=%2f&cb=7" ||
		r.Method != "POST" || r.Protocol != "HTTP/2.0" || r.Stream != 1 || r.Conn != 1 || len(r.Trailer) != 1 ||
		fmt.Sprint(r.Values("X-B")) != "[1 3]" {
		t.Errorf("recorded %+v", r)
	}
}

// A client that reads nothing must not make the SSP queue a frame for each frame of the client.
func TestHTTP2ReadsNoMoreFromAClientThatDoesNotRead(t *testing.T) {
	testsupport.Long(t)
	const body, flood = 16 << 20, 32 << 20
	s := startH2C(t, Behaviour{Latency: Constant(time.Millisecond), Response: Response{Size: Size{Constant: body}}})
	h := dialH2C(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	h.must(h.framer.WriteWindowUpdate(0, 1<<30))
	h.get(1)
	s.await(t, "the response is being written", func(c Counters) bool { return c.ByStatus[200] == 1 })
	ping := bytes.Repeat([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"), 1000)
	h.must(h.c.SetWriteDeadline(time.Now().Add(time.Second)))
	sent, err := 0, error(nil)
	for sent < flood && err == nil {
		var n int
		n, err = h.c.Write(ping)
		sent += n
	}
	testsupport.True(t, err != nil, "the SSP has taken %d bytes of PINGs", sent)
	h.must(h.c.SetWriteDeadline(time.Time{}))
}
