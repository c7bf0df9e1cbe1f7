package http2

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

func TestEachExchangeEndsAtItsOwnDeadline(t *testing.T) {
	p := connect(t, testOptions())
	long := get("/long") // the timer is set for it first
	long.timeout = time.Hour
	last, id := p.begin(long)
	var done []<-chan result
	for _, ms := range []time.Duration{40, 10, 30, 1, 20, 50, 10} {
		done = append(done, p.start(get("/").within(ms*time.Millisecond)))
	}
	for _, ch := range done {
		res := wait(t, ch)
		testsupport.MustTrue(t, errors.Is(res.err, exchange.ErrDeadline), "got %v", res.err)
		testsupport.True(t, !res.times.Done.Before(res.deadline), "ended %v too early", res.deadline.Sub(res.times.Done))
	}
	p.respond(id, "in time")
	wait(t, last).wantBody(t, "in time")
}

// Nearly all exchanges end before their deadlines. So the timer is set for the first, and not again for
// those that end later.
func TestTimerIsNotSetForEachExchange(t *testing.T) {
	p := connect(t, testOptions())
	timerAt := func() time.Time {
		p.conn.mu.Lock()
		defer p.conn.mu.Unlock()
		return p.conn.deadlines.alarm.At
	}
	var first time.Time
	for i := range 6 {
		p.exchange(get("/"), "ok")
		if i == 0 {
			first = timerAt()
		}
	}
	at := timerAt()
	testsupport.True(t, !first.IsZero() && at.Equal(first), "the timer was set from %v to %v for exchanges that end later", first, at)
}

// gated is a connection whose reads begin only when the gate opens. It simulates a reader's
// goroutine that the scheduler delays.
type gated struct {
	*wire
	gate chan struct{}
}

func (g gated) Read(b []byte) (int, error) {
	<-g.gate
	return g.wire.Read(b)
}

// A response that arrived before the deadline counts, even if it is read late. A request does not
// wait for a response beyond its deadline.
func TestResponseThatArrivedBeforeTheDeadlineCountsEvenIfReadLate(t *testing.T) {
	testsupport.Long(t)
	for _, late := range []time.Duration{0, time.Microsecond, time.Millisecond, maxLateChecks*lateCheckPause - time.Microsecond, time.Second} {
		testsupport.Bubble(t, func(t *testing.T) {
			w, gate := newWire(), make(chan struct{}, 100)
			c := newOnWire(gated{w, gate}, w, newOwner(), testOptions())
			gate <- struct{}{}
			w.send(http2codec.AppendFrameHeader(nil, 0, h2.FrameSettings, 0, 0))
			synctest.Wait()
			r := get("/").within(100 * time.Millisecond)
			began := time.Now()
			done := r.start(c)
			synctest.Wait()
			w.send(appendData(appendHeaders(nil, 1, false, ":status", "200"), 1, true, "in time"))
			time.Sleep(r.timeout + late)
			close(gate)
			res := <-done
			took := time.Since(began)
			switch {
			case late < maxLateChecks*lateCheckPause && res.body != "in time":
				t.Errorf("read %v late: got %v", late, res.err)
			case late >= maxLateChecks*lateCheckPause && (res.err != exchange.ErrDeadline || res.times.Done.Sub(began) > r.timeout+maxLateChecks*lateCheckPause):
				t.Errorf("read %v late: got %v after %v", late, res.err, took)
			}
			c.Close(exchange.ClosedDrain)
		})
	}
}
