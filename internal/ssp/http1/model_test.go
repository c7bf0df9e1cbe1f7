//go:build !race

package http1

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// The model of a pipelined connection states the allowed results of each exchange. It uses only the
// bytes that crossed the wire. RFC 9112, sections 9.3 and 9.6:
//
//   - A request was not sent if no byte of it was written.
//   - A request that was written after a response with Connection: close was not processed.
//   - Any other written request may have been processed.
//
// The test runs all combinations of states, responses, closes and failed writes, and compares the
// connection with the model.

// ending is the last response of a case, and its effect on the connection.
type ending uint8

const (
	noEnding     ending = iota
	closes              // whole, with Connection: close
	closesHalf          // with Connection: close and an incomplete body
	http10              // whole, of HTTP/1.0
	http10Closes        // whole, of HTTP/1.0, with Connection: close
	untilClose_         // without a length, and incomplete
	odd                 // whole, with a bare LF
	halfHead
	halfBody
	malformed
	overBudget  // complete, but over the exchange's budget: the connection continues
	unsolicited // one more response follows the last complete one
	ahead       // like unsolicited, in one segment: waiting requests are not written yet
	endingKinds
)

var endingNames = [endingKinds]string{"none", "close", "half a close", "http/1.0", "http/1.0 with close", "until close", "odd",
	"half a head", "half a body", "malformed", "over budget", "unsolicited", "ahead"}

// text is the SSP's response to the request with this name.
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

// provesBehind reports whether the response states that no later request is processed.
func (e ending) provesBehind() bool { return e == closes || e == closesHalf || e == http10Closes }

// whole reports whether the exchange that gets this response succeeds at once.
func (e ending) whole() bool { return e == closes || e == http10 || e == http10Closes || e == odd }

const modelBudget = 100

// modelCase is one case.
type modelCase struct {
	proven    bool
	exchanges int
	gone      int  // index of the exchange that is abandoned before any response; -1 for none
	cancelled bool // abandoned because of its context, not its deadline
	good      int  // complete responses that arrive
	ending    ending
	then      string // the event at the end: "fin", "close", "time"
	writable  int    // bytes of successful writes, in halves of a request; -1 for all
	stalled   bool   // writes wait until the end, and then fail
}

func (p modelCase) String() string {
	type fields modelCase // without this method
	return fmt.Sprintf("%+v, ending %s", fields(p), endingNames[p.ending])
}

// modelCases calls f for each case.
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

// wire holds the requests that the SSP has received.
type wire struct {
	text      string
	responded int
}

const requestText = "GET /x HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\n\r\n"

// whole returns the names of the complete requests, in order.
func (w *wire) whole() (names []string) {
	for i := 0; i+len(requestText) <= len(w.text); i += len(requestText) {
		names = append(names, w.text[i+5:i+6])
	}
	return names
}

// bytes returns how many bytes of the request with this name have arrived.
func (w *wire) bytes(name string) int {
	i := strings.Index(w.text, "GET /"+name+" ")
	if i < 0 {
		return 0
	}
	return min(len(w.text)-i, len(requestText))
}

func (p modelCase) play(tb testing.TB) {
	opts := &Options{MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10, Linger: time.Hour, Depth: 8}
	m := newSim(tb, pipelined, opts)
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
		// The first deadline is the latest. The first write ends at its deadline, and the deadline
		// of a waiting request must come earlier.
		budget := time.Minute - time.Duration(i)*time.Millisecond
		if i == p.gone && !p.cancelled {
			budget = 10 * time.Millisecond
		}
		calls = append(calls, m.begin(budget, func(ex *exchange.Exchange) {
			ex.Request.Target = []byte("/" + nameOf(i))
			ex.Budget = exchange.NewBudget(modelBudget)
			if i == p.gone && p.cancelled {
				ex.Context = ctx
			}
		}))
	}
	cancel()
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()

	// Each response is for a complete request.
	var w wire
	responded := make(map[string]ending) // the endings, by the request's name
	good := make(map[string]bool)
	next := func() (name string, ok bool) {
		w.text += m.s.Take()
		names := w.whole()
		if w.responded == len(names) {
			return "", false
		}
		w.responded++
		return names[w.responded-1], true
	}
	for i := range p.good {
		name, ok := next()
		if !ok {
			break
		}
		good[name] = true
		text := textResponse(name)
		if p.ending == ahead && i == p.good-1 && w.responded*len(requestText) == len(w.text) {
			text += textResponse("?")
		}
		m.send(text)
	}
	proof := "" // no request after the one with this name was processed
	if p.ending == unsolicited {
		w.text += m.s.Take()
		if w.responded*len(requestText) == len(w.text) { // a response may follow only a part of its request
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
		w.text += m.s.Take() // unread bytes would make the close send a RST
		m.s.End()
	case "close":
		w.text += m.s.Take()
		m.conn.Close(exchange.ClosedDrain)
	default:
		w.text += m.s.Take()
		time.Sleep(2 * time.Minute)
	}
	synctest.Wait()
	w.text += m.s.Take()

	for i, c := range calls {
		name := nameOf(i)
		testsupport.MustTrue(tb, !c.at.IsZero(), "%s did not return", name)
		p.check(tb, i, c, &w, good[name], responded[name], proof != "" && proof < name)
		testsupport.MustTrue(tb, strings.Count(w.text, "GET /"+name+" ") <= 1, "%s was written twice: %q", name, w.text)
	}
	m.close()
	testsupport.MustEqual(tb, m.conn.Places(), 0, "a closed connection has places: %v")
}

func nameOf(i int) string { return string(rune('a' + i)) }

// check compares the result of an exchange with the model. good says that its complete response
// arrived. e is the ending that arrived for it. behind says that an earlier response announced the
// close.
func (p modelCase) check(tb testing.TB, i int, c *call, w *wire, good bool, e ending, behind bool) {
	tb.Helper()
	name, left := nameOf(i), i == p.gone
	whole := good || e.whole() || e == untilClose_ && p.then == "fin"
	if c.err == nil {
		testsupport.MustTrue(tb, whole && !left && string(c.ex.Response.Body) == name, "%s succeeded with %q; its response arrived: %v; it was abandoned: %v", name, c.ex.Response.Body, whole, left)
		return
	}
	testsupport.MustTrue(tb, !whole || left, "%s failed, but its response arrived: %v", name, c.err)
	err := exchange.AsError(c.err)
	if left && (p.writable >= 0 || p.stalled && i == 0) && err.Progress == exchange.NotSent && err.Outcome != exchange.Cancelled {
		left = false // its write failed before its caller could abandon it
	}
	written := w.bytes(name) > 0
	var want exchange.Progress
	switch {
	case left && p.cancelled:
		testsupport.MustTrue(tb, c.err == exchange.ErrCancelled, "%s, which was cancelled, ended with %v", name, c.err)
		return
	case p.stalled && i == 0 && err.Outcome == exchange.Deadline:
		want = err.Progress // its write ends at the same moment, or may still succeed
	case !written && err.Progress == exchange.NotProcessed:
		want = exchange.NotProcessed // also true of requests that were not sent
	case !written:
		want = exchange.NotSent
	case behind && !left:
		want = exchange.NotProcessed
	default:
		want = exchange.MaybeProcessed
	}
	testsupport.MustTrue(tb, err.Progress == want, "%s ended with %v, progress %d, want %d; %d bytes of it were written", name, c.err, err.Progress, want, w.bytes(name))
	if timedOut := err.Outcome == exchange.Deadline; timedOut && i != p.gone && p.then != "time" || left && !timedOut {
		tb.Fatalf("%s ended with %v", name, c.err)
	}
	if err.Stale && (err.Progress != exchange.MaybeProcessed || e != noEnding || p.then == "close" && p.ending == noEnding || i == 0 && !p.proven) {
		tb.Fatalf("%s reports a stale connection: %v", name, c.err)
	}
}

func TestPipelinedConnectionAgreesWithTheModel(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		n := 0
		modelCases(func(p modelCase) {
			if n++; *full || n%11 == 0 {
				p.play(namer{t, p})
			}
		})
		t.Logf("%d plans", n)
	})
}
