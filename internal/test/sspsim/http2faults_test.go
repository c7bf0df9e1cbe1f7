package sspsim

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http2"
)

func TestHTTP2RefuseStreamIsProvablyUnprocessed(t *testing.T) {
	s := startH2C(t, withFaults(Faults{RefuseStream: Every(2)}))
	h := dialH2C(t, s)
	for id := uint32(1); id <= 7; id += 2 {
		a := h.ask(id)
		if refused := a.reset != nil && *a.reset == http2.ErrCodeRefusedStream; refused != (id%4 == 3) {
			t.Errorf("stream %d: %+v", id, a)
		}
	}
	if n := s.Counters(); n.Requests != 2 || n.Unprocessed != 2 || n.Faults["refuse_stream"] != 2 {
		t.Errorf("counters %+v", n)
	}
}

func TestHTTP2ResetStreamHasItsCodeAndMayComeAfterTheHead(t *testing.T) {
	for _, v := range []struct {
		fault ResetStream
		code  http2.ErrCode
	}{
		{ResetStream{}, http2.ErrCodeInternal},
		{ResetStream{Code: "CANCEL"}, http2.ErrCodeCancel},
		{ResetStream{Code: "ENHANCE_YOUR_CALM", AfterHead: true}, http2.ErrCodeEnhanceYourCalm},
	} {
		v.fault.Chance = Every(2)
		s := startH2C(t, Behaviour{Response: Response{Trailers: Always}, Faults: Faults{ResetStream: v.fault}})
		h := dialH2C(t, s)
		h.ask(1)
		a := h.ask(3)
		if a.reset == nil || *a.reset != v.code || (a.status != "") != v.fault.AfterHead || (a.body != "") != v.fault.AfterHead {
			t.Errorf("%+v: %+v", v.fault, a)
		}
		h.get(5) // the connection stays usable
		if a := h.response(5); a.status != "200" {
			t.Errorf("stream 5: %+v", a)
		}
		s.wantFault(t, "reset_stream")
	}
}

func TestHTTP2LongFieldEndsTheConnection(t *testing.T) {
	s := startH2C(t, Behaviour{Latency: Constant(time.Minute), Connections: Connections{MaxField: 100}})
	h := dialH2C(t, s)
	h.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "ssp", ":path", "/", "x", strings.Repeat("v", 99))
	h.headers(3, true, ":method", "GET", ":scheme", "http", ":authority", "ssp", ":path", "/", "x", strings.Repeat("v", 100))
	f, ok := h.next().(*http2.GoAwayFrame)
	testsupport.MustTrue(t, ok && f.ErrCode == http2.ErrCodeEnhanceYourCalm, "got %v", f)
	s.await(t, "the end of the connection, with stream 1 in flight", func(c Counters) bool { return c.Requests == 1 && c.OpenConnections == 0 })
}

func TestHTTP2GoAwayServesTheStreamsItNames(t *testing.T) {
	s := startH2C(t, Behaviour{Latency: Constant(50 * time.Millisecond),
		Faults: Faults{GoAway: GoAway{Chance: Every(2), Code: "ENHANCE_YOUR_CALM"}}})
	h := dialH2C(t, s)
	h.get(1)
	h.get(3)
	h.get(5)
	f, ok := h.next().(*http2.GoAwayFrame)
	testsupport.MustTrue(t, ok && f.LastStreamID == 3 && f.ErrCode == http2.ErrCodeEnhanceYourCalm, "got %v, want GOAWAY up to 3", f)
	ended := map[uint32]bool{}
	for len(ended) < 2 {
		if f, ok := h.next().(*http2.DataFrame); ok && f.StreamEnded() {
			ended[f.StreamID] = true
		}
	}
	testsupport.True(t, ended[1] && ended[3], "ended %v", ended)
	h.wantEnd()
	if n := s.Counters(); n.Responded != 2 || n.Unprocessed != 1 {
		t.Errorf("counters %+v", n)
	}
	s.wantFault(t, "goaway")
}

func TestHTTP2GoAwayCanExcludeTheRequestThatItMeets(t *testing.T) {
	s := startH2C(t, Behaviour{Latency: Constant(30 * time.Millisecond), Faults: Faults{GoAway: GoAway{Chance: Every(3), Exclude: true}}})
	h := dialH2C(t, s)
	h.post(1, false) // incomplete before the GOAWAY, and below its last stream ID
	h.get(3)
	h.get(5)
	h.get(7)
	f, ok := h.next().(*http2.GoAwayFrame)
	testsupport.MustTrue(t, ok && f.LastStreamID == 5 && f.ErrCode == http2.ErrCodeNo, "got %v, want GOAWAY up to 5", f)
	h.must(h.framer.WriteData(1, true, nil))
	ended := map[uint32]bool{}
	for len(ended) < 3 {
		if f, ok := h.next().(*http2.DataFrame); ok && f.StreamEnded() {
			ended[f.StreamID] = true
		}
	}
	h.wantEnd()
	if n := s.Counters(); !ended[1] || n.Requests != 3 || n.Unprocessed != 1 {
		t.Errorf("ended %v, counters %+v", ended, n)
	}
	// The excluded stream is the only one, so the connection ends at once.
	s = startH2C(t, withFaults(Faults{GoAway: GoAway{Chance: Always, Exclude: true}}))
	h = dialH2C(t, s)
	h.get(1)
	if f, ok := h.next().(*http2.GoAwayFrame); !ok || f.LastStreamID != 0 {
		t.Fatalf("got %v, want GOAWAY up to 0", f)
	}
	h.wantEnd()
}

func TestHTTP2FaultsOfABodyAndBehindIt(t *testing.T) {
	for key, v := range map[string]struct {
		faults Faults
		data   []int // lengths of the DATA frames, of all streams
	}{
		"drip":     {Faults{Drip: Drip{Chance: Always, Bytes: 120}}, []int{120, 120, 60}},
		"cut_body": {Faults{CutBody: Always}, []int{150}},
		"leftover": {Faults{Leftover: Every(1)}, []int{300, len(Poison)}},
	} {
		s := startH2C(t, Behaviour{Response: Response{Size: Size{Constant: 300}}, Faults: v.faults})
		h := dialH2C(t, s)
		h.get(1)
		for _, want := range v.data {
			f := h.next()
			if _, ok := f.(*http2.MetaHeadersFrame); ok {
				f = h.next()
			}
			testsupport.Equal(t, int(f.Header().Length), want, key+": a DATA frame of %d bytes")
		}
		s.wantFault(t, key)
	}
}
