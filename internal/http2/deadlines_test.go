package http2

import (
	"errors"
	"testing"
	"time"

	"adbuffer/internal/upstream"
)

func TestShorterDeadlineEndsBeforeALongerOneThatIsWatched(t *testing.T) {
	p := connect(t, testOptions())
	long := get("/long")
	long.timeout = time.Hour
	done := p.start(long)
	id := p.request().StreamID
	for range 3 {
		short := get("/short")
		short.timeout = 10 * time.Millisecond
		if res := wait(t, p.start(short)); !errors.Is(res.err, upstream.ErrDeadline) {
			t.Fatalf("got %v", res.err)
		}
	}
	p.answer(id, "in time")
	wait(t, done).wantBody(t, "in time")
}

func TestNoExchangeEndsBeforeItsDeadline(t *testing.T) {
	p := connect(t, testOptions())
	var done []<-chan result
	for _, ms := range []time.Duration{40, 10, 30, 1, 20, 50, 10} {
		r := get("/")
		r.timeout = ms * time.Millisecond
		done = append(done, p.start(r))
	}
	for _, ch := range done {
		res := wait(t, ch)
		if !errors.Is(res.err, upstream.ErrDeadline) {
			t.Fatalf("got %v", res.err)
		}
		if res.times.Done.Before(res.deadline) {
			t.Errorf("ended %v too early", res.deadline.Sub(res.times.Done))
		}
	}
}

func TestTimerIsNotSetForEachExchange(t *testing.T) {
	p := connect(t, testOptions())
	for range 5 {
		done := p.start(get("/"))
		p.answer(p.request().StreamID, "ok")
		wait(t, done).wantBody(t, "ok")
	}
	p.conn.mu.Lock()
	at := p.conn.deadlines.at
	p.conn.mu.Unlock()
	last := p.start(get("/"))
	p.answer(p.request().StreamID, "ok")
	wait(t, last).wantBody(t, "ok")
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	if at.IsZero() || !p.conn.deadlines.at.Equal(at) {
		t.Errorf("the timer was set from %v to %v for an exchange that ends later", at, p.conn.deadlines.at)
	}
}
