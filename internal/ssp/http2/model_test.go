//go:build !race

// The race detector would make the histories of the model take six times as long. Other tests look for races.

package http2

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

var modelDepth = flag.Int("model.depth", 0, "frames in each history of TestConnectionAgainstItsModel; 0 = what fits into a short test")

// The model is a second, much simpler description of how a connection with two requests ends. It
// was written from RFC 9113, not from the code. The test plays every history of a few frames to the
// model and to the connection, with every end and with failing writes. It compares the results of
// both requests.

// modelResult is the result of a request: its response, or its progress.
type modelResult struct {
	body     string // "" if it failed
	progress exchange.Progress
	http1    bool // it may be sent again over HTTP/1
}

func (r modelResult) String() string {
	if r.body != "" {
		return "the response " + r.body
	}
	return [...]string{"not sent", "not processed", "maybe processed"}[r.progress] + map[bool]string{true: ", again over HTTP/1"}[r.http1]
}

// side is one request in the model.
type side struct {
	id         uint32
	sent       bool // a part of it
	responding bool // HEADERS of the response came
	final      bool // HEADERS of the final response came
	whole      bool // END_STREAM came after it
	weReset    bool
	body       string
	finished   bool
	result     modelResult
}

func (s *side) finish(r modelResult) {
	if !s.finished {
		s.finished, s.result = true, r
	}
}

func (s *side) fail(p exchange.Progress) { s.finish(modelResult{progress: p}) }

func (s *side) complete() {
	s.whole = true
	s.finish(modelResult{body: s.body + "."})
}

// bad says that the response violates HTTP/2, and adbuffer resets the stream.
func (s *side) bad() {
	s.weReset = true
	s.fail(exchange.MaybeProcessed)
}

// modelled is the connection in the model.
type modelled struct {
	sides    []*side
	draining bool
	closed   bool
}

// end ends the connection for both requests.
func (m *modelled) end() {
	m.closed = true
	for _, s := range m.sides {
		if s.sent {
			s.fail(exchange.MaybeProcessed)
		} else {
			s.fail(exchange.NotSent)
		}
	}
}

func (m *modelled) settle() {
	for _, s := range m.sides {
		if !s.finished {
			return
		}
	}
	if m.draining {
		m.closed = true
	}
}

// event is an action of the peer: its bytes, and their meaning.
type event struct {
	name  string
	of    uint32 // stream, 0 = none
	bytes []byte
	means func(m *modelled)
}

// events is the alphabet of histories.
func events(m *modelled) (all []event) {
	for i, s := range m.sides {
		name := string(rune('A' + i))
		add := func(what string, b []byte, means func(s *side)) {
			all = append(all, event{what + " " + name, s.id, b, func(m *modelled) {
				means(m.sides[i])
				m.settle()
			}})
		}
		headers := func(final, last bool) func(*side) {
			return func(s *side) {
				switch {
				case s.finished: // the stream has ended; later HEADERS affect no other stream
				case s.final, last && !final: // a second header, or a 1xx header that ends the stream
					s.bad()
				default:
					s.responding, s.final = true, s.final || final
					if last {
						s.complete()
					}
				}
			}
		}
		tag := []string{"x-of", name}
		add("103", appendHeaders(nil, s.id, false, ":status", "103"), headers(false, false))
		add("103 END", appendHeaders(nil, s.id, true, ":status", "103"), headers(false, true))
		add("200", appendHeaders(nil, s.id, false, append([]string{":status", "200"}, tag...)...), headers(true, false))
		add("200 END", appendHeaders(nil, s.id, true, append([]string{":status", "200"}, tag...)...), headers(true, true))
		add("trailers", appendHeaders(nil, s.id, true, "x-end", name), func(s *side) {
			switch {
			case s.finished:
			case !s.final:
				s.bad()
			default:
				s.complete()
			}
		})
		for _, last := range []bool{false, true} {
			all = append(all, event{fmt.Sprintf("DATA %s %t", name, last), s.id, appendData(nil, s.id, last, name), func(m *modelled) {
				s := m.sides[i]
				switch {
				case s.whole, s.weReset: // an error of this stream, or frames already sent
				case s.finished: // the peer has reset or ended the stream, and uses it again
					m.end()
				case !s.final:
					s.bad()
				default:
					if s.body += name; last {
						s.complete()
					}
				}
				m.settle()
			}})
		}
		for _, code := range []h2.ErrCode{h2.ErrCodeRefusedStream, h2.ErrCodeHTTP11Required, h2.ErrCodeCancel} {
			add("RST_STREAM "+code.String(), http2codec.AppendReset(nil, s.id, code), func(s *side) {
				switch {
				case s.responding || code == h2.ErrCodeCancel:
					s.fail(exchange.MaybeProcessed)
				case code == h2.ErrCodeHTTP11Required:
					s.finish(modelResult{progress: exchange.MaybeProcessed, http1: true})
				default:
					s.fail(exchange.NotProcessed)
				}
			})
		}
	}
	for _, code := range []h2.ErrCode{h2.ErrCodeNo, h2.ErrCodeHTTP11Required} {
		for _, last := range []uint32{0, m.sides[0].id, http2codec.MaxStreamID} {
			all = append(all, event{fmt.Sprintf("GOAWAY %d %v", last, code), 0, appendGoAwayOf(nil, last, code), func(m *modelled) {
				m.draining = true
				for _, s := range m.sides {
					switch {
					case s.id <= last || !s.sent:
					case s.responding:
						s.fail(exchange.MaybeProcessed)
					default:
						s.fail(exchange.NotProcessed)
					}
				}
				m.settle()
			}})
		}
	}
	all = append(all,
		event{"PING", 0, http2codec.AppendPing(nil, 0, make([]byte, 8)), func(*modelled) {}},
		event{"WINDOW_UPDATE by 0", 0, http2codec.AppendWindowUpdate(nil, 0, 0), (*modelled).end})
	return all
}

// writes says how many bytes of the two requests are written. Later writes fail or wait.
type writes struct {
	name       string
	a, b       int // bytes of each, -1 = all
	waits      bool
	aSent      bool
	bSent      bool
	onlyEvents func(of uint32) bool
}

var allWrites = []writes{
	{"both written", -1, -1, false, true, true, func(uint32) bool { return true }},
	{"nothing written", 0, 0, false, false, false, func(of uint32) bool { return of == 0 }},
	{"a part of the first written", 5, 0, false, true, false, func(of uint32) bool { return of == 0 }},
	{"the first written", -1, 0, false, true, false, func(of uint32) bool { return of < 3 }},
	{"the first and a part of the second written", -1, 5, false, true, true, func(of uint32) bool { return of < 3 }},
	{"the first being written", 5, 0, true, true, false, func(of uint32) bool { return of == 0 }},
}

// endings are the ways in which a connection ends after its history.
var endings = []struct {
	name  string
	do    func(c *Conn, w *wire)
	means func(m *modelled)
}{
	{"FIN", func(_ *Conn, w *wire) { w.end(io.EOF) }, (*modelled).end},
	{"RST", func(_ *Conn, w *wire) { w.end(errReset) }, (*modelled).end},
	{"Close", func(c *Conn, _ *wire) { c.Close(exchange.ClosedMaxAge) }, (*modelled).end},
	{"the deadline", func(*Conn, *wire) { time.Sleep(2 * time.Second) }, func(m *modelled) {
		for _, s := range m.sides { // the bytes in the buffer may still be written
			s.fail(exchange.MaybeProcessed)
		}
	}},
}

func newModel(w writes) *modelled {
	m := &modelled{sides: []*side{{id: 1, sent: w.aSent}, {id: 3, sent: w.bSent}}}
	if !w.waits && (w.a >= 0 || w.b >= 0) { // a failed write: requests that were not written fail at once, and nothing more is sent
		m.draining = true
		for _, s := range m.sides {
			if !s.sent {
				s.fail(exchange.NotSent)
			}
		}
		m.settle()
	}
	return m
}

// played returns the connection's results for the two requests of a history.
func played(t *testing.T, wr writes, history []event, end func(*Conn, *wire)) [2]modelResult {
	c, w, o := onWire(t, testOptions())
	if wr.a >= 0 || wr.b >= 0 {
		w.change(func() { w.room, w.full = 0, nil })
	}
	a, b := get("/A"), post("/B", "body")
	a.timeout, b.timeout = time.Second, time.Second
	done := [2]<-chan result{a.start(c)}
	synctest.Wait() // until the first request is being written
	c.mu.Lock()
	sizeOfA := int(c.streams.get(1).start) // offset of its start
	sizeOfA = int(c.out.Handed) - sizeOfA
	c.mu.Unlock()
	if wr.a < 0 && wr.b >= 0 {
		w.take(sizeOfA)
		synctest.Wait()
	}
	done[1] = b.start(c)
	synctest.Wait()
	if wr.a >= 0 || wr.b >= 0 {
		w.change(func() {
			if w.room = max(wr.a, 0) + max(wr.b, 0); !wr.waits {
				w.full = errReset
			}
		})
		synctest.Wait()
	}
	var all []byte
	for _, e := range history {
		all = append(all, e.bytes...)
	}
	w.send(all)
	synctest.Wait()
	end(c, w)
	synctest.Wait()
	w.take(1 << 20) // the waiting bytes may be written now, if the connection is still open
	synctest.Wait()
	var got [2]modelResult
	for i := range done {
		res := <-done[i]
		if res.err == nil {
			name := string(rune('A' + i))
			testsupport.True(t, res.fields == "x-of: "+name+"\r\n" && strings.Trim(res.body, name) == "", "request %s was given fields %q and body %q", name, res.fields, res.body)
			got[i] = modelResult{body: res.body + "."}
			continue
		}
		e := exchange.AsError(res.err)
		got[i] = modelResult{progress: e.Progress, http1: e.OverHTTP1}
		testsupport.True(t, e.Progress != exchange.NotSent || !w.wrote(uint32(2*i+1)), "request %c is reported as not sent, and was written", 'A'+i)
	}
	c.Close(exchange.ClosedDrain)
	w.Close()
	synctest.Wait()
	testsupport.Equal(t, o.freed.Load(), 2, "%d places were freed")
	return got
}

func TestConnectionAgainstItsModel(t *testing.T) {
	testsupport.Long(t)
	count := 0
	for _, wr := range allWrites {
		depth := *modelDepth
		if depth == 0 {
			depth = 2
		}
		testsupport.RunBubble(t, wr.name, func(t *testing.T) {
			var explore func(history []event)
			explore = func(history []event) {
				m := newModel(wr)
				for _, e := range history {
					e.means(m)
				}
				ends := endings
				if m.closed {
					ends = endings[:1]
				}
				for _, end := range ends {
					final := newModel(wr)
					for _, e := range history {
						if !final.closed {
							e.means(final)
						}
					}
					if !final.closed {
						end.means(final)
					}
					got := played(t, wr, history, end.do)
					count++
					for i, s := range final.sides {
						want := s.result
						if !s.sent && (got[i].progress == exchange.NotProcessed) {
							want.progress = exchange.NotProcessed // the SSP received no byte that it could process
						}
						if got[i] != want {
							var names []string
							for _, e := range history {
								names = append(names, e.name)
							}
							t.Errorf("%s; %s; then %s: request %c gets %q, want %q", wr.name, strings.Join(names, ", "), end.name, 'A'+i, got[i], want)
						}
					}
					if t.Failed() {
						return
					}
				}
				if m.closed || len(history) == depth {
					return
				}
				for _, e := range events(m) {
					if wr.onlyEvents(e.of) {
						explore(append(history[:len(history):len(history)], e))
					}
					if t.Failed() {
						return
					}
				}
			}
			explore(nil)
		})
	}
	t.Logf("%d histories", count)
}
