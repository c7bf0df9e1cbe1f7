//go:build !race

package http1

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// full runs the campaigns of this package completely: go test ./internal/ssp/http1 -full. Without it
// they run a sample that is always the same.
var full = flag.Bool("full", false, "run campaigns as a whole")

// In the simulation a response arrives in two parts, cut at any byte, on connections with any
// history. The pause ends 1 ms before, at, and 1 ms after each timeout. In every case, bytes that
// arrived before the deadline count, and the caller returns exactly at the deadline, or when its
// context ends. A connection is reused if and only if the response ends within linger, and its
// place is not free before. No response reaches another request.

// simResponses are the SSP's responses, all with the body "hello" or none.
var simResponses = []struct {
	name, text, body string
	status           int
	fin              bool // the SSP closes at the end
}{
	{"fixed", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, false},
	{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: x\r\n\r\n", "hello", 200, false},
	{"interim", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, false},
	{"no content", "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", "", 204, false},
	{"until close", "HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello", "hello", 200, true},
	{"http/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, true},
}

// histories bring a connection to the start of the exchange under test. They return the bytes that
// the SSP must send before its response, in one segment with the first part of it.
var histories = []struct {
	name    string
	behind  bool // after another exchange; pipelined only
	overdue bool // the earlier exchange is overdue, unless its response arrives at once
	play    func(m *sim) (before string)
}{
	{"fresh", false, false, func(*sim) string { return "" }},
	{"kept", false, false, func(m *sim) string {
		m.exchange(time.Second, 0)
		return ""
	}},
	{"kept after a deadline that was nearly met", false, false, func(m *sim) string {
		m.exchange(20*time.Millisecond, 19*time.Millisecond)
		return ""
	}},
	{"kept beyond the previous deadline", false, false, func(m *sim) string {
		m.exchange(20*time.Millisecond, 19*time.Millisecond)
		time.Sleep(tick)
		return ""
	}},
	{"idle for long", false, false, func(m *sim) string {
		m.exchange(simBudget, 0)
		time.Sleep(50 * time.Second)
		return ""
	}},
	{"after an abandoned exchange", false, false, func(m *sim) string {
		c := m.begin(10*time.Millisecond, func(ex *exchange.Exchange) { ex.UsualTimeout = tick }) // overdue after 10 ms
		m.s.Take()
		m.s.Arrive("HTTP/1.1 200 OK\r\nContent-Le")
		time.Sleep(15 * time.Millisecond)
		synctest.Wait()
		testsupport.MustEqual[error](m.tb, c.err, exchange.ErrDeadline, "error %v")
		m.send("ngth: 3\r\n\r\nold")
		return ""
	}},
	{"after a cancelled exchange", false, false, func(m *sim) string {
		ctx, cancel := context.WithCancel(context.Background())
		c := m.begin(time.Second, func(ex *exchange.Exchange) { ex.Context = ctx })
		m.s.Take()
		cancel()
		synctest.Wait()
		testsupport.MustEqual[error](m.tb, c.err, exchange.ErrCancelled, "error %v")
		time.Sleep(5 * time.Millisecond)
		m.send(textResponse("old"))
		return ""
	}},
	{"after a slow write", false, false, func(m *sim) string {
		m.s.Stall(true)
		c := m.begin(40*time.Millisecond, nil)
		time.Sleep(39 * time.Millisecond)
		m.s.Stall(false)
		synctest.Wait()
		m.s.Take()
		m.send(textResponse("slow"))
		m.wantBody(c, time.Time{}, 200, "slow")
		return ""
	}},
	{"behind another exchange", true, false, func(m *sim) string {
		m.exchange(time.Second, 0) // the first response of the connection
		m.begin(time.Minute, nil)
		return textResponse("first")
	}},
	{"behind an abandoned exchange", true, true, func(m *sim) string {
		m.exchange(time.Second, 0)
		m.begin(10*time.Millisecond, nil)
		m.s.Arrive("HTTP/1.1 200 OK\r\n")
		time.Sleep(10*time.Millisecond + tick)
		return "Content-Length: 3\r\n\r\nold"
	}},
}

// scene is one case of the simulation.
type scene struct {
	response int // index in simResponses
	cut      int // bytes in the first part
	first    time.Duration
	second   time.Duration
	late     bool // no read wakes up for bytes before the deadline
	cancel   bool // the context ends at simBudget, and not the deadline
	history  int
	kind     kind
}

func (sc scene) String() string {
	return fmt.Sprintf("%s, %s, %s: %d bytes at %v, the rest at %v, late %v, cancelled %v",
		sc.kind, histories[sc.history].name, simResponses[sc.response].name, sc.cut, sc.first, sc.second, sc.late, sc.cancel)
}

func (sc scene) play(tb testing.TB) {
	opts := &Options{MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10, Linger: simLinger, Depth: 8}
	m := newSim(tb, sc.kind, opts)
	defer m.s.Release()
	r, h := simResponses[sc.response], histories[sc.history]
	before := h.play(m)
	begin := time.Now()
	deadline := begin.Add(simBudget)
	budget, abandoned := simBudget, exchange.ErrDeadline
	var ctx context.Context
	if sc.cancel {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(context.Background(), simBudget)
		defer end()
		budget, abandoned = time.Hour, exchange.ErrCancelled
	}
	c := m.begin(budget, func(ex *exchange.Exchange) { ex.Context = ctx })
	m.s.Take()
	m.s.Hold(sc.late)
	time.Sleep(time.Until(begin.Add(sc.first)))
	m.s.Arrive(before + r.text[:sc.cut])
	time.Sleep(time.Until(begin.Add(sc.second)))
	if freed, _ := m.owner.counts(); !r.fin && !h.overdue && sc.second < simBudget+simLinger && freed >= m.exchanges {
		tb.Fatal("the place is free while the response is outstanding")
	}
	m.s.Arrive(r.text[sc.cut:])
	if r.fin {
		m.s.End()
	}
	synctest.Wait()
	came := begin.Add(sc.second)
	switch {
	case came.Before(deadline):
		if sc.late {
			time.Sleep(time.Until(deadline))
			synctest.Wait()
			came = deadline
		}
		m.wantBody(c, came, r.status, r.body)
	case came.Equal(deadline) && c.err == nil:
		m.wantBody(c, came, r.status, r.body)
	default:
		if c.err != abandoned || c.at != deadline || c.ex.Times.Done != deadline {
			tb.Fatalf("error %v at %v, Times.Done %v, want %v at %v", c.err, c.at.Sub(begin), c.ex.Times.Done.Sub(begin), abandoned, simBudget)
		}
	}

	// After an abandoned exchange, a connection is reusable only if its response is complete within
	// linger. If another exchange is in front, linger begins when that exchange has ended.
	m.s.Hold(false)
	limit := deadline.Add(simLinger)
	if turn := begin.Add(sc.first); h.behind && turn.After(deadline) {
		limit = turn.Add(simLinger)
	}
	overdue := h.overdue && sc.first > 0 // the exchange in front was overdue
	time.Sleep(time.Until(deadline.Add(simLinger + 5*tick)))
	synctest.Wait()
	switch used := m.conn.Places() > 0; {
	case r.fin || overdue || came.After(limit):
		testsupport.MustTrue(tb, !used, "the connection takes another request")
		testsupport.MustTrue(tb, m.s.Closed(), "the socket is open")
	case came.Before(limit):
		testsupport.MustTrue(tb, used, "the connection was closed: %v", m.conn.CloseReason())
	}
	if m.conn.Places() > 0 {
		next := m.begin(simBudget, nil)
		got := m.s.Take()
		testsupport.MustTrue(tb, strings.Count(got, "GET ") == 1, "the next request is %q", got)
		m.send(textResponse("next"))
		m.wantBody(next, time.Now(), 200, "next")
	}
	m.close()
}

// scenes calls f for all scenes of one kind of connection and one history.
func scenes(k kind, history int, f func(scene)) {
	const d, l = simBudget, simBudget + simLinger
	for response, r := range simResponses {
		for cut := range len(r.text) {
			sc := scene{response: response, cut: cut, history: history, kind: k}
			for _, second := range []time.Duration{d - tick, d, d + tick, l - tick, l, l + tick, l + 2*tick} {
				for _, first := range []time.Duration{0, d - tick, d + tick, l - tick} {
					if first <= second {
						sc.first, sc.second = first, second
						for _, sc.cancel = range []bool{false, true} {
							f(sc)
						}
					}
				}
			}
			sc.first, sc.second, sc.late, sc.cancel = 0, d-tick, true, false
			f(sc)
		}
	}
}

// namer adds the scene's name to an error.
type namer struct {
	testing.TB
	what fmt.Stringer
}

func (n namer) Fatal(args ...any) { n.Helper(); n.TB.Fatal(n.what, ": ", fmt.Sprint(args...)) }
func (n namer) Fatalf(format string, args ...any) {
	n.Helper()
	n.TB.Fatalf("%v: "+format, append([]any{n.what}, args...)...)
}

func TestSimulatedResponsesAreNeverRefusedForTimeNorMixedUp(t *testing.T) {
	testsupport.Long(t)
	for _, k := range kinds {
		for history, h := range histories {
			if h.behind && k == exclusive {
				continue
			}
			testsupport.RunBubble(t, fmt.Sprint(k, "/", h.name), func(t *testing.T) {
				n := history // every history gets a different sample
				scenes(k, history, func(sc scene) {
					if n++; *full || n%47 == 0 {
						sc.play(namer{t, sc})
					}
				})
			})
		}
	}
}
