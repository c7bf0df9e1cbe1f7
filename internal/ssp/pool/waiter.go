package pool

import (
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/fairqueue"
)

// waiter is a request in the queue.
type waiter struct {
	// ready receives once result is there: exactly once, after the pool has removed the waiter from
	// the queue. Its capacity is 1, so that the pool never blocks on it.
	ready  chan struct{}
	result waitResult

	// Pool.mu guards the fields below.

	prev, next  *waiter // in the queue; next also links actions.results
	queued      bool
	pending     bool   // no dial under way is expected to serve it; see queue
	front       bool   // had a place before
	alone       bool   // Exchange.Alone or Exchange.Isolated
	isolated    bool   // waits in isolation.queue
	resent      bool   // see exchange.Exchange
	redials     int    // failed dials that it may still survive; see exchange.Exchange
	avoid       string // see exchange.Exchange
	inElsewhere bool   // it waits in elsewhere.waiters, and in no queue, although queued is true
	yields      int    // places that went to requests behind it; see queue.yield
	key         uint64 // Exchange.FairKey
	fair        fairqueue.Item[*waiter]

	// timer fires at wakeAt, when the waiter should check whether its time has passed. It may fire too
	// early, but never too late.
	timer       *time.Timer
	wakeAt      time.Time
	waking      bool // the waiter is in actions.wakes
	nextWake    *waiter
	deadline    time.Time
	since       lag.Span      // began at the last begin, setPending or extend
	dialLeft    time.Duration // how long it may wait for dials, counted from since; lag does not count
	pendingLeft time.Duration // how long it may be pending, counted from since
}

// waitResult is the result of a wait. If it holds neither a place nor an error, full says why.
type waitResult struct {
	lease  *lease
	ticket exchange.Ticket // of the place
	err    error
	full   queueFull
	dialed bool // the pool just opened the connection
	took   dialDurations
}

func newWaiter() *waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	w := &waiter{ready: make(chan struct{}, 1), timer: t}
	w.fair.Value = w
	return w
}

// begin prepares w for the wait of ex. again says that ex had a place on a stale connection.
func (w *waiter) begin(ex *exchange.Exchange, again bool, o *Options, now time.Time) {
	w.deadline, w.since = ex.Deadline, o.Lag.Begin(now)
	w.alone, w.isolated, w.resent, w.redials = ex.Alone || ex.Isolated, false, ex.Resent, ex.Redials-ex.Redialed
	w.avoid, w.yields, w.key = ex.Avoid, 0, ex.FairKey
	w.front = again || ex.Resent
	w.dialLeft, w.pendingLeft = o.waitForDial(), o.PendingTimeout
	if w.resent {
		w.dialLeft = w.deadline.Sub(now)
		w.pendingLeft = w.dialLeft
	}
}

// setPending sets whether w waits for a released place or a dial, and so how long it may wait.
func (w *waiter) setPending(pending bool, now time.Time) {
	if w.pending {
		w.pendingLeft -= w.since.Elapsed(now)
	} else {
		w.dialLeft -= w.since.Ran(now)
	}
	w.pending, w.since = pending, w.since.Again(now)
}

// extend lets the waiter wait up to dialLeft for another dial.
func (w *waiter) extend(dialLeft time.Duration, now time.Time) {
	w.setPending(w.pending, now) // subtracts the time that it has waited so far
	w.dialLeft = dialLeft
}

// timeLeft returns the time left in the current wait of w.
func (w *waiter) timeLeft(now time.Time) time.Duration {
	if w.pending {
		return w.pendingLeft - w.since.Elapsed(now)
	}
	return w.since.Left(w.dialLeft, now)
}

// until returns when w must check whether its time has passed.
func (w *waiter) until(now time.Time) time.Time {
	return now.Add(min(w.timeLeft(now), w.deadline.Sub(now)))
}

// overdue returns why w may not wait longer, or nil. The error of a pending request names placeSettings, and wraps
// cause, which says why the pool opens no connection.
func (w *waiter) overdue(o *Options, placeSettings string, cause error, now time.Time) error {
	switch {
	case !now.Before(w.deadline):
		return exchange.ErrDeadlineNotSent
	case w.timeLeft(now) > 0:
		return nil
	case w.pending:
		e := exchange.Errorf(exchange.PendingTimeout, exchange.NotSent,
			"no place was free within %v; see %s and pool.pending_timeout", o.PendingTimeout, placeSettings)
		e.Err = cause
		return e
	default: // w waited for as long as a dial may take
		return exchange.Errorf(exchange.ConnectFailed, exchange.NotSent,
			"no connection was ready within %v; see timeouts.connect and timeouts.tls_handshake", o.dialLimit())
	}
}
