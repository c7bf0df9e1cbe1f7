package load

import (
	"net"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestErrorsAreCountedByKind(t *testing.T) {
	for _, c := range []struct {
		name string
		b    sspsim.Behaviour
		kind string
	}{
		{"reset", sspsim.Behaviour{Faults: sspsim.Faults{Reset: sspsim.Every(4)}}, Reset},
		{"cut body", sspsim.Behaviour{Response: sspsim.Response{Size: sspsim.Size{Constant: 4000}},
			Faults: sspsim.Faults{CutBody: sspsim.Every(4)}}, Cut},
		{"status", sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Every(4)}}},
			"status 503"},
		{"not HTTP", sspsim.Behaviour{Faults: sspsim.Faults{Malformed: sspsim.Malformed{Chance: sspsim.Every(4),
			Kinds: []sspsim.Malformation{sspsim.BadStatusLine}}}}, badResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startSSP(t, sspsim.Options{Behaviour: c.b})
			r := run(t, closedPlan(s.Addr(), 100, 1))
			if n := r.Whole.Errors[c.kind]; n != 25 || r.Whole.Answered != 75 {
				t.Errorf("%d of kind %q, %d responses, errors %v", n, c.kind, r.Whole.Answered, r.Whole.Errors)
			}
			wantDoubt(t, r, "25.0 % of the requests failed")
		})
	}
}

func wantDoubt(t *testing.T, r *Result, text string) {
	t.Helper()
	testsupport.True(t, strings.Contains(strings.Join(r.Doubts, "\n"), text), "doubts %q, want one with %q", r.Doubts, text)
}

func TestRequestsWithoutResponseTimeOutAndCountAmongTheLatencies(t *testing.T) {
	testsupport.Long(t)
	t.Parallel()
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Stall: sspsim.Every(10)}}})
	p := closedPlan(s.Addr(), 20, 1)
	p.Timeout = 2 * time.Second // a slow machine needs some of it for the other requests
	r := run(t, p)
	if r.Whole.Errors[TimedOut] != 2 || r.Whole.Answered != 18 {
		t.Fatalf("%d responses, errors %v", r.Whole.Answered, r.Whole.Errors)
	}
	testsupport.AtLeast(t, r.Whole.Latency.P99, 2000, "p99 is %.0f ms without the timeouts of 2 s")
	testsupport.Equal(t, r.Connections, 2, "%d connections, want another after the first timeout")
}

func TestTargetThatRefusesEndsTheRunWithTheReason(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	addr := ln.Addr().String()
	ln.Close()
	for _, protocol := range []Protocol{KeepAlive, Close} {
		p := at(addr, 10, time.Minute)
		p.Protocol = protocol
		_, err = Run(t.Context(), p, nil)
		if kindOf(err) != Refused || !strings.HasPrefix(err.Error(), addr) {
			t.Errorf("%s: %v, want that %s refuses", protocol, err, addr)
		}
	}
}

func TestRateThatCannotBeKeptIsDoubted(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(time.Second)}})
	p := at(s.Addr(), 200, time.Second)
	p.Connections, p.Timeout = 2, 1500*time.Millisecond
	r := run(t, p)
	wantDoubt(t, r, "the rate was not kept")
	testsupport.True(t, r.Whole.Errors[noConnection] != 0, "errors %v, want requests that found no connection", r.Whole.Errors)
	if n := r.Whole.Answered + r.Whole.Failed; n != 200 || r.Whole.Offered != 200 {
		t.Errorf("%d requests ended and %d were offered, want all 200", n, r.Whole.Offered)
	}
}

func TestConnectionsClosedBetweenRequestsAreOpenedAgainWithoutError(t *testing.T) {
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 10,
		Announce: true}}})
	r := run(t, closedPlan(s.Addr(), 100, 1))
	if r.Whole.Answered != 100 || r.Connections != 10 {
		t.Errorf("%d responses on %d connections, want 100 on 10", r.Whole.Answered, r.Connections)
	}
}

func TestCloseModeShakesHandsForEveryRequest(t *testing.T) {
	s := startSSP(t, sspsim.Options{})
	p := closedPlan(s.Addr(), 50, 5)
	p.Protocol = Close
	if r := run(t, p); r.Whole.Answered != 50 || r.Connections != 50 {
		t.Errorf("%d responses on %d connections, want 50 on 50", r.Whole.Answered, r.Connections)
	}
}

// A client that waits for a due request must get it at once. If all clients are busy, the server is too slow, and
// not the generator.
func TestIdleClientsThatGetRequestsLateAreALag(t *testing.T) {
	for _, idle := range []bool{false, true} {
		p := at("127.0.0.1:1", 1, time.Second)
		g := newGenerator(&p, newRecorder(&p, nil))
		g.base, g.stop = time.Now().Add(-time.Second), t.Context()
		late := arrival{lag: time.Millisecond} // due a second ago
		if !idle {
			g.due <- late
		}
		if _, ok := g.next(func() { g.due <- late }); !ok {
			t.Fatal("no request")
		}
		lag := time.Duration(g.rec.lag.Max())
		testsupport.True(t, (!idle || lag >= time.Second) && (idle || lag <= 2*time.Millisecond), "client idle %v: lag %v", idle, lag)
	}
}
