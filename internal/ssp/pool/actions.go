package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
)

// actions are what an event makes the shell do: the machine decides, and Pool acts. Waiters are linked
// by their own fields, so that a request that waits allocates nothing.
type actions struct {
	// notEmpty is set when there is an action. It points to connections.hasActions, whose cache line each request
	// reads anyway.
	notEmpty *bool

	results, lastResult *waiter // waiters that have a place or an error, oldest first; linked by next
	wakes               *waiter // waiters whose time to check changed; linked by nextWake
	dials               []dialOrder
	closes              []*member        // connections to close; their places are free
	checks              []*endpoint      // endpoints whose next health check should begin at once
	events              []balancer.Event // to report
	growAt, reviveAt    time.Time        // when to grow or revive again; zero = no need
	warm                bool             // min_idle connections are open for the first time
	besideDialed        chan struct{}    // to close
	emptied             bool             // the pool is closed, and no place is in use any more
}

// dialOrder is a dial to start. m will be the connection.
type dialOrder struct {
	m          *member
	to         aim
	offerHTTP2 bool
}

// answer ends the wait of w, which has left its queue.
func (a *actions) answer(w *waiter, r waitResult) {
	*a.notEmpty = true
	w.result, w.next = r, nil
	if a.results == nil {
		a.results = w
	} else {
		a.lastResult.next = w
	}
	a.lastResult = w
}

// wake makes w check its time at the given moment.
func (a *actions) wake(w *waiter, at time.Time) {
	w.wakeAt = at
	if w.waking {
		return
	}
	*a.notEmpty, w.waking = true, true
	w.nextWake, a.wakes = a.wakes, w
}

func (a *actions) dial(o dialOrder) { *a.notEmpty, a.dials = true, append(a.dials, o) }

func (a *actions) close(m *member) { *a.notEmpty, a.closes = true, append(a.closes, m) }

func (a *actions) check(e *endpoint) { *a.notEmpty, a.checks = true, append(a.checks, e) }

func (a *actions) report(events []balancer.Event) {
	*a.notEmpty, a.events = *a.notEmpty || len(events) > 0, append(a.events, events...)
}

func (a *actions) growAgain(at time.Time) { *a.notEmpty, a.growAt = true, earlier(a.growAt, at) }

func (a *actions) reviveAgain(at time.Time) { *a.notEmpty, a.reviveAt = true, earlier(a.reviveAt, at) }

func (a *actions) besideOver(done chan struct{}) { *a.notEmpty, a.besideDialed = true, done }

func (a *actions) isWarm() { *a.notEmpty, a.warm = true, true }

func (a *actions) isEmptied() { *a.notEmpty, a.emptied = true, true }

// earlier returns the earlier moment. The zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
