package http1

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/upstream"
)

// The model of a pipelined connection: what each exchange on it may end with, told
// only from what crossed the wire. RFC 9112, sections 9.3 and 9.6:
//
//   - A request of which no byte was written was not sent.
//   - One that was written, behind a response that says Connection: close, was not
//     processed.
//   - Any other that was written may have been processed.
//
// All combinations of states, responses, ends and failed writes are played, and
// the connection is held to the model.

// ending is the last response of a plan, and how the connection fares with it.
type ending uint8

const (
	noEnding     ending = iota
	closes              // whole, with Connection: close
	closesHalf          // the same, without the end of its body
	http10              // whole, of HTTP/1.0
	http10Closes        // the same, with Connection: close
	untilClose_         // without a length, not ended
	odd                 // whole, with a bare LF
	halfHead
	halfBody
	malformed
	overBudget // whole, and too large for the exchange's budget: the connection goes on
	unasked    // behind the last whole response comes another
	ahead      // the same, with it in one segment: requests that wait are not written yet
	endingKinds
)

var endingNames = [endingKinds]string{"none", "close", "half a close", "http/1.0", "http/1.0 with close", "until close", "odd",
	"half a head", "half a body", "malformed", "over budget", "unasked", "ahead"}

// text is what the SSP sends for the request of this name.
func (e ending) text(name string) string {
	switch e {
	case closes:
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n" + name
	case closesHalf:
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n" + name
	case http10:
		return "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n" + name
	case http10Closes:
		return "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n" + name
	case untilClose_:
		return "HTTP/1.1 200 OK\r\n\r\n" + name
	case odd:
		return "HTTP/1.1 200 OK\r\nX: y\nContent-Length: 1\r\n\r\n" + name
	case halfHead:
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nConte"
	case halfBody:
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + name
	case malformed:
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent Length: 1\r\n\r\n" + name
	case overBudget:
		return textResponse(strings.Repeat(name, modelBudget+1))
	default:
		return ""
	}
}

// provesBehind: the response says that nothing behind it is processed.
func (e ending) provesBehind() bool { return e == closes || e == closesHalf || e == http10Closes }

// whole: the exchange that gets it ends well, and at once.
func (e ending) whole() bool { return e == closes || e == http10 || e == http10Closes || e == odd }

const modelBudget = 100

// plan is one case.
type modelCase struct {
	proven    bool
	exchanges int
	gone      int  // whose caller leaves before any response; -1 for nobody's
	cancelled bool // by its context, and not by its deadline
	good      int  // whole responses that come
	ending    ending
	then      string // what happens at last: "fin", "close", "time"
	writable  int    // bytes that can be written before writes fail, in halves of a request; -1 for all
	stalled   bool   // writes wait until the end, and then fail
}

func (p modelCase) String() string {
	return fmt.Sprintf("%+v, ending %s", struct {
		proven          bool
		exchanges, gone int
		cancelled       bool
		good            int
		then            string
		writable        int
		stalled         bool
	}{p.proven, p.exchanges, p.gone, p.cancelled, p.good, p.then, p.writable, p.stalled}, endingNames[p.ending])
}

// plans calls f for all of them.
func modelCases(f func(modelCase)) {
	for n := 1; n <= 3; n++ {
		for _, proven := range []bool{false, true} {
			for gone := -1; gone < 2*n; gone++ {
				p := modelCase{proven: proven, exchanges: n, gone: gone, writable: -1}
				if gone >= n {
					p.gone, p.cancelled = gone-n, true
				}
				for _, p.then = range []string{"fin", "close", "time"} {
					p.good, p.ending, p.stalled, p.writable = 0, noEnding, true, -1
					f(p)
					for p.good, p.stalled = 0, false; p.good <= n; p.good++ {
						for p.ending = range endingKinds {
							for p.writable = -1; p.writable < 2*n; p.writable++ {
								f(p)
							}
						}
					}
				}
			}
		}
	}
}

// wire is what the script has seen of the requests.
type wire struct {
	text     string
	answered int
}

const requestText = "GET /x HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\n\r\n"

// whole returns the names of the requests that have come whole, in order.
func (w *wire) whole() (names []string) {
	for i := 0; i+len(requestText) <= len(w.text); i += len(requestText) {
		names = append(names, w.text[i+5:i+6])
	}
	return names
}

// bytes returns how many bytes of the request of this name have come.
func (w *wire) bytes(name string) int {
	i := strings.Index(w.text, "GET /"+name+" ")
	if i < 0 {
		return 0
	}
	return min(len(w.text)-i, len(requestText))
}

func (p modelCase) play(tb testing.TB) {
	opts := &Options{MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10, Linger: time.Hour, Depth: 8}
	m := newSim(tb, true, opts)
	defer m.s.Release()
	if p.proven {
		m.exchange(time.Minute, 0)
	}
	if p.writable >= 0 {
		m.s.FailWrites(p.writable * len(requestText) / 2)
	}
	m.s.Stall(p.stalled)

	var calls []*call
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range p.exchanges {
		budget := time.Minute
		if i == p.gone && !p.cancelled {
			budget = 10 * time.Millisecond
		}
		calls = append(calls, m.begin(budget, func(ex *upstream.Exchange) {
			ex.Request.Target = []byte("/" + nameOf(i))
			ex.Budget = upstream.NewBudget(modelBudget)
			if i == p.gone && p.cancelled {
				ex.Context = ctx
			}
		}))
	}
	cancel()
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()

	// Responses, each to a request that has come whole.
	var w wire
	responded := make(map[string]ending) // what came for a request, where it is an ending
	good := make(map[string]bool)
	next := func() (name string, ok bool) {
		w.text += m.s.Take()
		names := w.whole()
		if w.answered == len(names) {
			return "", false
		}
		w.answered++
		return names[w.answered-1], true
	}
	for i := range p.good {
		name, ok := next()
		if !ok {
			break
		}
		good[name] = true
		text := textResponse(name)
		if p.ending == ahead && i == p.good-1 && w.answered*len(requestText) == len(w.text) {
			text += textResponse("?")
		}
		m.send(text)
	}
	proof := "" // all behind the request of this name was not processed
	if p.ending == unasked {
		w.text += m.s.Take()
		if w.answered*len(requestText) == len(w.text) { // to a part of a request a response may come
			m.send(textResponse("?"))
		}
	} else if p.ending != noEnding && p.ending != ahead {
		if name, ok := next(); ok {
			responded[name] = p.ending
			m.send(p.ending.text(name))
			if p.ending.provesBehind() {
				proof = name
			}
		}
	}
	switch p.then {
	case "fin":
		w.text += m.s.Take() // or it would be a reset
		m.s.End()
	case "close":
		w.text += m.s.Take()
		m.conn.Close(upstream.ClosedDrain)
	default:
		w.text += m.s.Take()
		time.Sleep(2 * time.Minute)
	}
	synctest.Wait()
	w.text += m.s.Take()

	for i, c := range calls {
		name := nameOf(i)
		if c.at.IsZero() {
			tb.Fatalf("%s did not end", name)
		}
		p.check(tb, i, c, &w, good[name], responded[name], proof != "" && proof < name)
		if strings.Count(w.text, "GET /"+name+" ") > 1 {
			tb.Fatalf("%s was written twice: %q", name, w.text)
		}
	}
	m.close()
	if m.conn.Places() != 0 {
		tb.Fatal("a closed connection has places")
	}
}

func nameOf(i int) string { return string(rune('a' + i)) }

// check holds the end of an exchange to the model. good: its whole response came.
// e: what else came for it. behind: a response in front of it said close.
func (p modelCase) check(tb testing.TB, i int, c *call, w *wire, good bool, e ending, behind bool) {
	tb.Helper()
	name, left := nameOf(i), i == p.gone
	whole := good || e.whole() || e == untilClose_ && p.then == "fin"
	if c.err == nil {
		if !whole || left || string(c.ex.Response.Body) != name {
			tb.Fatalf("%s ended well with %q; its response came: %v; its caller left: %v", name, c.ex.Response.Body, whole, left)
		}
		return
	}
	if whole && !left {
		tb.Fatalf("%s failed although its response came: %v", name, c.err)
	}
	err := upstream.AsError(c.err)
	if left && (p.writable >= 0 || p.stalled && i == 0) && err.Progress == upstream.NotSent && err.Outcome != upstream.Cancelled {
		left = false // it was about to write, and its write failed before it could leave
	}
	written := w.bytes(name) > 0
	var want upstream.Progress
	switch {
	case left && p.cancelled:
		if c.err != upstream.ErrCancelled {
			tb.Fatalf("%s, which was cancelled, ended with %v", name, c.err)
		}
		return
	case p.stalled && i == 0 && err.Outcome == upstream.Deadline:
		want = err.Progress // its write ends at the same moment, or may still succeed
	case !written && err.Progress == upstream.NotProcessed:
		want = upstream.NotProcessed // which is no less true of what was not sent
	case !written:
		want = upstream.NotSent
	case behind && !left:
		want = upstream.NotProcessed
	default:
		want = upstream.MaybeProcessed
	}
	if err.Progress != want {
		tb.Fatalf("%s ended with %v, progress %d, want %d; %d bytes of it were written", name, c.err, err.Progress, want, w.bytes(name))
	}
	if timedOut := err.Outcome == upstream.Deadline; timedOut && i != p.gone && p.then != "time" || left && !timedOut {
		tb.Fatalf("%s ended with %v", name, c.err)
	}
	if err.Stale && (err.Progress != upstream.MaybeProcessed || e != noEnding || p.then == "close" && p.ending == noEnding || i == 0 && !p.proven) {
		tb.Fatalf("%s says that it met a connection that had closed: %v", name, c.err)
	}
}

func TestPipelinedConnectionAgreesWithTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		modelCases(func(p modelCase) {
			if n++; *full || n%11 == 0 {
				p.play(namer{t, p})
			}
		})
		t.Logf("%d plans", n)
	})
}
