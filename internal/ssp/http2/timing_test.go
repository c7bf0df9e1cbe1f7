package http2

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// The tests below play a connection on a scripted socket, with exact moments. They cut a message in
// two at each byte. They miss, meet and keep each timeout of the connection by 1 ms, after each
// history. The rule: adbuffer never refuses bytes that arrived in time, and never waits for a
// silent peer without a bound.

const exactly = time.Millisecond

// history brings a connection into a state, and returns the next stream's number.
type history struct {
	name string
	play func(t *testing.T, c *Conn, w *wire) (next uint32)
}

var histories = []history{
	{"fresh", func(*testing.T, *Conn, *wire) uint32 { return 1 }},
	{"kept", func(t *testing.T, c *Conn, w *wire) uint32 {
		for i := range uint32(3) {
			done := get("/before").start(c)
			synctest.Wait()
			w.send(appendData(appendHeaders(nil, 2*i+1, false, ":status", "200"), 2*i+1, true, "before"))
			wantBodyOf(t, <-done, "before")
			time.Sleep(10 * time.Second)
		}
		return 7
	}},
	{"after an abandoned exchange", func(t *testing.T, c *Conn, w *wire) uint32 {
		testsupport.MustEqual[error](t, get("/abandoned").within(5*time.Millisecond).do(c).err, exchange.ErrDeadline, "the abandoned exchange got %v")
		synctest.Wait()
		return 3
	}},
	{"beside a response that has begun", func(t *testing.T, c *Conn, w *wire) uint32 {
		get("/beside").within(time.Hour).start(c)
		synctest.Wait()
		w.send(appendData(appendHeaders(nil, 1, false, ":status", "200"), 1, false, "half"))
		synctest.Wait()
		return 3
	}},
	{"after a write that waited", func(t *testing.T, c *Conn, w *wire) uint32 {
		w.change(func() { w.room = 0 })
		done := post("/slow", strings.Repeat("x", 3000)).start(c)
		for range 3 {
			time.Sleep(testWriteTimeout / 5)
			w.take(900)
		}
		w.take(1 << 20)
		synctest.Wait()
		w.send(appendHeaders(nil, 1, true, ":status", "204"))
		res := <-done
		testsupport.MustTrue(t, res.err == nil, "the slow request got %v", res.err)
		return 3
	}},
}

const (
	testWriteTimeout = 5 * time.Second
	testPingTimeout  = 7 * time.Second
)

func timingOptions() Options {
	o := testOptions()
	o.WriteTimeout, o.PingTimeout = testWriteTimeout, testPingTimeout
	return o
}

func wantBodyOf(t *testing.T, r result, body string) {
	t.Helper()
	testsupport.True(t, r.err == nil && r.body == body, "got %v, body %q; want %q", r.err, r.body, body)
}

// afterHistory runs one request after a history.
func afterHistory(t *testing.T, opts Options, h history, r request, play func(c *Conn, w *wire, id uint32, done <-chan result)) {
	t.Helper()
	c, w, _ := onWire(t, opts)
	id := h.play(t, c, w)
	done := r.start(c)
	synctest.Wait()
	play(c, w, id, done)
	w.finish(c)
}

func TestResponsesInTwoPartsAroundTheDeadline(t *testing.T) {
	testsupport.Long(t)
	const deadline = 300 * time.Millisecond
	for first, h := range histories { // each history with other cuts
		testsupport.RunBubble(t, h.name, func(t *testing.T) {
			whole := func(id uint32) []byte {
				b := appendHeaders(nil, id, false, ":status", "103")
				b = appendHeaders(b, id, false, ":status", "200", "content-length", "4")
				b = appendData(b, id, false, "bo")
				return appendData(b, id, true, "dy")
			}
			from, step := first%3, 3
			if *full {
				from, step = 0, 1
			}
			for cut := from; cut < len(whole(1)); cut += step {
				for _, at := range []time.Duration{deadline - exactly, deadline, deadline + exactly} {
					afterHistory(t, timingOptions(), h, get("/").within(deadline), func(_ *Conn, w *wire, id uint32, done <-chan result) {
						b := whole(id)
						w.send(b[:cut])
						time.Sleep(at)
						w.send(b[cut:])
						synctest.Wait()
						time.Sleep(maxLateChecks * lateCheckPause)
						res := <-done
						what := fmt.Sprintf("cut at %d, the rest %v from the deadline", cut, at-deadline)
						switch {
						case at < deadline && (res.err != nil || res.body != "body"):
							t.Errorf("%s: got %v, %q", what, res.err, res.body)
						case at > deadline && res.err != exchange.ErrDeadline:
							t.Errorf("%s: got %v, %q", what, res.err, res.body)
						case at == deadline && res.err != nil && res.err != exchange.ErrDeadline:
							t.Errorf("%s: got %v", what, res.err)
						}
						testsupport.AtMost(t, res.times.Done.Sub(res.deadline), maxLateChecks*lateCheckPause, "%[2]s: ended %[1]v after the deadline", what)
					})
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

// If the peer reads again just before write_timeout, the connection stays open, even after many
// writes that waited. If it does not, the connection is closed.
func TestWritesThatWaitAroundTheWriteTimeout(t *testing.T) {
	testsupport.Long(t)
	for _, h := range histories {
		testsupport.RunBubble(t, h.name, func(t *testing.T) {
			for _, rounds := range []int{1, 3} {
				for _, at := range []time.Duration{testWriteTimeout - exactly, testWriteTimeout + exactly} {
					c, w, _ := onWire(t, timingOptions())
					id := h.play(t, c, w)
					for i := range rounds {
						last := i == rounds-1
						w.change(func() { w.room = 0 })
						done := get("/").within(time.Minute).start(c)
						if synctest.Wait(); last {
							time.Sleep(at)
						} else {
							time.Sleep(testWriteTimeout - exactly)
						}
						w.take(1 << 20)
						synctest.Wait()
						w.send(appendHeaders(nil, id, true, ":status", "204"))
						res := <-done
						testsupport.True(t, (res.err != nil) == (last && at > testWriteTimeout), "round %d of %d, %v from the timeout: got %v", i, rounds, at-testWriteTimeout, res.err)
						id += 2
					}
					w.finish(c)
				}
			}
		})
	}
}

// The place of an abandoned exchange becomes free when the peer acknowledges the PING after its
// reset, and not before. If a peer sends nothing for ping_timeout, the connection closes; any frame
// keeps it open.
func TestAbandonedPlacesAroundThePingTimeout(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			name  string
			sends []byte
			at    time.Duration
			alive bool
		}{
			{"acknowledged in time", http2codec.AppendPing(nil, h2.FlagPingAck, resetPing[:]), testPingTimeout - exactly, true},
			{"a byte in time", []byte{0}, testPingTimeout - exactly, true},
			{"acknowledged too late", http2codec.AppendPing(nil, h2.FlagPingAck, resetPing[:]), testPingTimeout + exactly, false},
		} {
			conn, w, o := onWire(t, timingOptions())
			testsupport.MustEqual[error](t, get("/").within(10*time.Millisecond).do(conn).err, exchange.ErrDeadline, "got %v")
			synctest.Wait()
			testsupport.True(t, o.freed.Load() == 0, "%s: the place was freed before the PING", c.name)
			time.Sleep(c.at)
			w.send(c.sends)
			synctest.Wait()
			time.Sleep(2 * exactly)
			synctest.Wait()
			alive := conn.CloseReason() == exchange.NotClosed
			testsupport.True(t, alive == c.alive, "%s: the close reason is %q", c.name, conn.CloseReason())
			testsupport.Equal(t, o.freed.Load(), 1, "%[2]s: %[1]d places were freed", c.name)
			w.finish(conn)
		}
	})
}

// Each PING has its own timeout: a peer that acknowledged the first one may be silent after the
// second one.
func TestSecondPingHasATimeoutToo(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		conn, w, _ := onWire(t, timingOptions())
		neighbour := get("/beside").within(time.Hour).start(conn)
		synctest.Wait()
		for _, acknowledged := range []bool{true, false} {
			testsupport.MustEqual[error](t, get("/").within(10*time.Millisecond).do(conn).err, exchange.ErrDeadline, "got %v")
			synctest.Wait()
			if acknowledged { // with a response, which allows another PING
				w.send(http2codec.AppendPing(appendHeaders(nil, 1, false, ":status", "200"), h2.FlagPingAck, resetPing[:]))
				synctest.Wait()
			}
		}
		time.Sleep(testPingTimeout + exactly)
		synctest.Wait()
		testsupport.Equal(t, conn.CloseReason(), exchange.ClosedTimeout, "the close reason is %q")
		(<-neighbour).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, detail: "PING"})
		testsupport.True(t, w.isClosed(), "the socket is open")
		w.end(errReset)
		synctest.Wait()
	})
}

// A draining connection completes its current exchanges and closes, however its frames are cut and
// delayed.
func TestDrainInTwoParts(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		whole := appendGoAwayOf(nil, 1, h2.ErrCodeNo)
		whole = appendData(appendHeaders(whole, 1, false, ":status", "200"), 1, true, "last")
		for cut := range whole {
			for _, pause := range []time.Duration{0, time.Millisecond, testWriteTimeout + exactly, testPingTimeout + exactly} {
				c, w, _ := onWire(t, timingOptions())
				first, second := get("/1").start(c), (<-chan result)(nil)
				synctest.Wait()
				second = get("/2").start(c)
				synctest.Wait()
				w.send(whole[:cut])
				time.Sleep(pause)
				w.send(whole[cut:])
				wantBodyOf(t, <-first, "last")
				(<-second).wantError(t, notProcessed)
				synctest.Wait()
				testsupport.True(t, w.isClosed(), "cut at %d: the connection is still open", cut)
			}
		}
	})
}
