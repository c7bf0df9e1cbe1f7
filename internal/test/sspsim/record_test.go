package sspsim

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestRequestsAreRecordedAsTheyCame(t *testing.T) {
	s := start(t, Options{Record: 3})
	head := "POST http://h/bid?a=%2F&b HTTP/1.1\r\nhOST: a\r\nX-B:  1 \r\nx-a: 2\r\nX-B: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
	c := dial(t, s)
	c.send(head + "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-T: t\r\n\r\n")
	c.response("POST")
	c.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	c.response("GET")
	all := s.Requests()
	testsupport.MustEqual(t, len(all), 2, "%d requests recorded")
	q := all[0]
	want := []Field{{"hOST", "a"}, {"X-B", "1"}, {"x-a", "2"}, {"X-B", "3"}, {"Transfer-Encoding", "chunked"}}
	if !reflect.DeepEqual(q.Header, want) || q.Method != "POST" || q.Target != "http://h/bid?a=%2F&b" || q.Protocol != "HTTP/1.1" ||
		string(q.Body) != "abcde" || string(q.Head) != head || !reflect.DeepEqual(q.Trailer, []Field{{"X-T", "t"}}) || q.Conn != 1 || q.Time.IsZero() {
		t.Errorf("recorded %+v", q)
	}
	if q.Get("x-b") != "1" || q.Get("none") != "" || fmt.Sprint(q.Values("X-b")) != "[1 3]" {
		t.Errorf("Get %q, Values %q", q.Get("x-b"), q.Values("X-b"))
	}
	testsupport.True(t, all[1].Protocol == "HTTP/1.0" && all[1].Body == nil, "recorded %+v", all[1])
}

func TestOnRequestSeesTheRequestBeforeItsResponseAndCanHoldIt(t *testing.T) {
	for _, protocol := range []Protocol{HTTP1, H2C} {
		release := make(chan struct{})
		var seen atomic.Int32
		s := start(t, Options{Protocol: protocol, OnRequest: func(q *Request) {
			if seen.Add(1); strings.HasSuffix(q.Target, "held") || strings.HasSuffix(q.Target, "s1") {
				<-release
			}
		}})
		responded := func() bool { return s.Counters().Responded > 0 }
		if protocol == HTTP1 {
			held, other := dial(t, s), dial(t, s)
			held.get("held")
			s.await(t, "the held request", func(c Counters) bool { return c.InFlight == 1 })
			testsupport.True(t, !responded(), "a response came while the request was held")
			other.wantOpen()
			close(release)
			held.response("GET")
		} else {
			h := dialH2C(t, s)
			h.get(1)
			h.get(3) // its response comes before that of the held stream
			h.response(3)
			close(release)
			h.response(1)
		}
		testsupport.Equal(t, seen.Load(), 2, "%[2]s: OnRequest saw %[1]d requests", protocol)
	}
}

func TestOnRequestChoosesTheResponse(t *testing.T) {
	choose := func(q *Request) {
		if strings.HasSuffix(q.Target, "chosen") || strings.HasSuffix(q.Target, "s3") {
			q.Respond = Status{Code: 503, RetryAfter: Duration(time.Second)}
		}
	}
	c := dial(t, start(t, Options{OnRequest: choose}))
	for target, want := range map[string]int{"chosen": 503, "other": 200} {
		if r, _ := c.ask(target); r.StatusCode != want || (r.Header.Get("Retry-After") == "1") != (want == 503) {
			t.Errorf("%s: %d, %v", target, r.StatusCode, r.Header)
		}
	}
	h := dialH2C(t, start(t, Options{Protocol: H2C, OnRequest: choose}))
	for _, id := range []uint32{1, 3} {
		if a := h.ask(id); a.status != map[uint32]string{1: "200", 3: "503"}[id] {
			t.Errorf("stream %d: %+v", id, a)
		}
	}
}

func TestOnUnprocessedSeesWhatTheCounterCounts(t *testing.T) {
	for _, faults := range []Faults{{RefuseStream: Every(2)}, {GoAway: GoAway{Chance: Every(2), Exclude: true}}} {
		var seen []string
		s := start(t, Options{Protocol: H2C, Behaviour: withFaults(faults), OnUnprocessed: func(target string) { seen = append(seen, target) }})
		h := dialH2C(t, s)
		h.ask(1)
		h.get(3)
		s.await(t, "the second request", func(c Counters) bool { return c.Unprocessed == 1 })
		s.Close() // and with it all goroutines that write seen
		testsupport.True(t, len(seen) == 1 && strings.HasSuffix(seen[0], "s3"), "%+v: saw %v", faults, seen)
	}
}
