package sspsim

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func TestHTTP2RefuseStreamIsProvablyUnprocessed(t *testing.T) {
	s := startH2C(t, withFaults(Faults{RefuseStream: Every(2)}))
	h := dialH2C(t, s)
	for id := uint32(1); id <= 7; id += 2 {
		h.get(id)
		a := h.response(id)
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
		h.get(1)
		h.response(1)
		h.get(3)
		a := h.response(3)
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

func TestHTTP2GoAwayServesTheStreamsItNames(t *testing.T) {
	s := startH2C(t, Behaviour{Latency: Constant(50 * time.Millisecond),
		Faults: Faults{GoAway: GoAway{Chance: Every(2), Code: "ENHANCE_YOUR_CALM"}}})
	h := dialH2C(t, s)
	h.get(1)
	h.get(3)
	h.get(5)
	f, ok := h.next().(*http2.GoAwayFrame)
	if !ok || f.LastStreamID != 3 || f.ErrCode != http2.ErrCodeEnhanceYourCalm {
		t.Fatalf("got %v, want GOAWAY up to 3", f)
	}
	ended := map[uint32]bool{}
	for len(ended) < 2 {
		if f, ok := h.next().(*http2.DataFrame); ok && f.StreamEnded() {
			ended[f.StreamID] = true
		}
	}
	if !ended[1] || !ended[3] {
		t.Errorf("ended %v", ended)
	}
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
	if !ok || f.LastStreamID != 5 || f.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want GOAWAY up to 5", f)
	}
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

func TestHTTP2StallHoldsOneStreamOnly(t *testing.T) {
	s := startH2C(t, withFaults(Faults{Stall: Every(2)}))
	h := dialH2C(t, s)
	h.get(1)
	h.response(1)
	h.get(3)
	s.await(t, "stalled stream", func(c Counters) bool { return c.InFlight == 1 })
	s.mustSet(t, Behaviour{})
	h.get(5)
	if a := h.response(5); a.status != "200" {
		t.Errorf("stream 5: %+v", a)
	}
	h.must(h.framer.WriteRSTStream(3, http2.ErrCodeCancel))
	s.await(t, "end of the stalled stream", func(c Counters) bool { return c.InFlight == 0 && c.ResetsSeen == 1 })
}

func TestHTTP2ConnectionFaults(t *testing.T) {
	t.Run("hang", func(t *testing.T) {
		s := startH2C(t, withFaults(Faults{Hang: Always}))
		c := dial(t, s)
		c.send(http2.ClientPreface)
		_ = c.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if text, err := c.rest(); text != "" || err == nil {
			t.Errorf("got %q and %v, want silence", text, err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		s := startH2C(t, withFaults(Faults{Reset: Always}))
		h := dialH2C(t, s)
		h.get(1)
		if _, err := io.ReadAll(h.br); !isReset(err) {
			t.Errorf("got %v, want a connection reset", err)
		}
		s.wantFault(t, "reset")
	})
	for _, fault := range []string{"cut_head", "cut_body"} {
		t.Run(fault, func(t *testing.T) {
			f := Faults{CutHead: Always}
			if fault == "cut_body" {
				f = Faults{CutBody: Always}
			}
			s := startH2C(t, Behaviour{Response: Response{NoBid: Always}, Faults: f})
			h := dialH2C(t, s)
			h.get(1)
			var head, data, ended bool
			var err error
			for err == nil {
				var f http2.Frame
				if f, err = h.framer.ReadFrame(); err != nil {
					break
				}
				switch f := f.(type) {
				case *http2.MetaHeadersFrame:
					head, ended = true, ended || f.StreamEnded()
				case *http2.DataFrame:
					data, ended = len(f.Data()) > 0, ended || f.StreamEnded()
				}
			}
			if whole := fault == "cut_body"; head != whole || data != whole || ended {
				t.Errorf("head %v, data %v, ended %v", head, data, ended)
			}
			if fault == "cut_head" && err != io.ErrUnexpectedEOF || fault == "cut_body" && err != io.EOF {
				t.Errorf("connection ended with %v", err)
			}
			s.wantFault(t, fault)
		})
	}
}

func TestHTTP2ResponseFaults(t *testing.T) {
	one := func(t *testing.T, f Faults) (*SSP, h2Response) {
		t.Helper()
		s := startH2C(t, withFaults(f))
		h := dialH2C(t, s)
		h.get(1)
		return s, h.response(1)
	}
	s, a := one(t, Faults{Status: Status{Chance: Always, Code: 429, RetryAfter: Duration(time.Second)}})
	if a.status != "429" || a.fields["retry-after"] != "1" || a.body == "" {
		t.Errorf("status: %+v", a)
	}
	s.wantFault(t, "status")
	s, a = one(t, Faults{OversizedHead: Oversized{Chance: Always, Bytes: 10_000}})
	if a.status != "200" || len(a.fields["x-pad"]) != 1000 {
		t.Errorf("oversized head: %+v", a)
	}
	s.wantFault(t, "oversized_head")
	s, a = one(t, Faults{OversizedBody: Oversized{Chance: Always, Bytes: 300_000}})
	if len(a.body) != 300_000 {
		t.Errorf("body of %d bytes", len(a.body))
	}
	s.wantFault(t, "oversized_body")
	begin := time.Now()
	s, a = one(t, Faults{Drip: Drip{Chance: Always, Bytes: 10, Pause: Duration(2 * time.Millisecond)}})
	if pieces := (len(a.body) + 9) / 10; time.Since(begin) < time.Duration(pieces-1)*2*time.Millisecond {
		t.Errorf("%d pieces came too fast", pieces)
	}
	s.wantFault(t, "drip")
}

func TestHTTP2OversizedHeadIsSplitIntoContinuations(t *testing.T) {
	s := startH2C(t, withFaults(Faults{OversizedHead: Oversized{Chance: Always, Bytes: 200_000}}))
	h := dialH2C(t, s)
	h.framer.ReadMetaHeaders = nil
	h.get(1)
	n, continuations := 0, 0
	for end := false; !end; {
		switch f := h.next().(type) {
		case *http2.HeadersFrame:
			n, end = n+len(f.HeaderBlockFragment()), f.HeadersEnded()
		case *http2.ContinuationFrame:
			continuations++
			n, end = n+len(f.HeaderBlockFragment()), f.HeadersEnded()
		}
	}
	if n < 150_000 || n > 220_000 || continuations != (n-1)/frameSize { // Huffman coding saves some bytes
		t.Errorf("head of %d bytes with %d continuations", n, continuations)
	}
}

func TestHTTP2PoisonComesOnUnsolicitedStreams(t *testing.T) {
	s := startH2C(t, withFaults(Faults{Unsolicited: Unsolicited{Chance: Always, Delay: Duration(10 * time.Millisecond)}}))
	h := dialH2C(t, s)
	h.get(1)
	h.response(1)
	if a := h.response(3); a.status != "200" || a.body != Poison {
		t.Errorf("unsolicited: %+v", a)
	}
	s.wantFault(t, "unsolicited")

	s = startH2C(t, withFaults(Faults{Leftover: Always}))
	h = dialH2C(t, s)
	h.get(1)
	h.response(1)
	if f, ok := h.next().(*http2.DataFrame); !ok || f.StreamID != 1 || string(f.Data()) != Poison {
		t.Errorf("leftover: %v", f)
	}
	s.wantFault(t, "leftover")
}

func TestHTTP2MalformedResponsesBreakOneRuleEach(t *testing.T) {
	checks := map[Malformation]string{ // expected content of the log of frames
		H2NoStatus:     "HEADERS[content-type: application/json; content-length: 103]",
		H2Uppercase:    "X-Upper: 1",
		H2Connection:   "connection: keep-alive",
		H2WrongLength:  "content-length: 104",
		H2PseudoBehind: "content-length: 103; :status: 200",
		H2DataFirst:    "DATA HEADERS",
		H2Garbage:      "",
		H2SettingsBad:  "SETTINGS[ENABLE_PUSH = 2] HEADERS",
	}
	if len(checks) != len(http2Malformations) {
		t.Fatalf("%d of %d malformations checked", len(checks), len(http2Malformations))
	}
	for kind, want := range checks {
		s := startH2C(t, withFaults(Faults{Malformed: Malformed{Chance: Always, Kinds: []Malformation{ObsFold, kind}}}))
		h := dialH2C(t, s)
		h.framer.ReadMetaHeaders = nil
		h.get(1)
		if kind == H2Garbage {
			var text []byte
			for !bytes.Contains(text, poisonResponse) {
				c, err := h.br.ReadByte()
				if err != nil {
					t.Fatalf("%s: got %q and %v", kind, text, err)
				}
				text = append(text, c)
			}
			continue
		}
		if log := h.log(); !strings.Contains(log, want) {
			t.Errorf("%s: got %s, want %s", kind, log, want)
		}
		s.wantFault(t, "malformed")
	}
}

// log reads frames up to the end of a stream, and records their content.
func (h *h2Client) log() string {
	var log strings.Builder
	for ended := false; !ended; {
		switch f := h.frame().(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingEnablePush); ok {
				fmt.Fprintf(&log, "SETTINGS[ENABLE_PUSH = %d] ", v)
			}
		case *http2.DataFrame:
			log.WriteString("DATA ")
			ended = f.StreamEnded()
		case *http2.HeadersFrame:
			fields := decodeBlock(h.t, f.HeaderBlockFragment())
			fmt.Fprintf(&log, "HEADERS[%s] ", strings.Join(fields, "; "))
			ended = f.StreamEnded()
		}
	}
	return log.String()
}
