package pool

import (
	"time"

	"adbuffer/internal/wire/fairqueue"
)

// queue holds the requests that wait, first in, first out, unless fair decides. Guarded by Pool.mu.
//
// Dials will serve the requests at the front; see growth.servedByDials. The other requests are pending: they wait
// for a place to be released, and max_pending and pending_timeout bound them.
//
//	head ⇄ … ⇄ waits for a dial │ firstPending ⇄ … ⇄ tail
//
// Requests that had a place before come first, ordered by their deadlines.
type queue struct {
	head, tail   *waiter
	firstPending *waiter // nil if none is pending
	n            int
	pending      int // requests that are pending; at most n
	alone        int // requests that must be alone on a pipelined connection; at most n
	// fair has the requests that never had a place; nil without server.fairness.key. See fairness.go.
	fair *fairqueue.Queues[*waiter]
	do   *actions // the machine's
}

// push adds w: at the back, or at the front if it had a place before.
func (q *queue) push(w *waiter, now time.Time) {
	at := q.insertionPoint(w)
	w.queued, w.next = true, at
	if at == nil {
		w.prev, w.pending = q.tail, true
		q.tail = w
	} else {
		w.prev, w.pending = at.prev, at.pending
		at.prev = w
	}
	if w.prev == nil {
		q.head = w
	} else {
		w.prev.next = w
	}
	if w.pending {
		q.pending++
		if q.firstPending == at {
			q.firstPending = w
		}
	}
	q.count(w, 1)
	q.pushFair(w, now)
}

// maxFront is the number of waiters that insertionPoint examines, which bounds its time. Beyond it the order by
// deadline has little effect.
const maxFront = 64

// insertionPoint returns the waiter before which w belongs, or nil if w belongs at the back. w is not in the queue.
func (q *queue) insertionPoint(w *waiter) *waiter {
	if !w.front {
		return nil
	}
	at := q.head
	for range maxFront {
		if at == nil || !at.front || w.deadline.Before(at.deadline) {
			break
		}
		at = at.next
	}
	return at
}

func (q *queue) remove(w *waiter) {
	if w.pending {
		q.pending--
		if q.firstPending == w {
			q.firstPending = w.next
		}
	}
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.count(w, -1)
	if q.fair != nil {
		q.fair.Remove(&w.fair)
	}
}

func (q *queue) count(w *waiter, n int) {
	q.n += n
	if w.alone {
		q.alone += n
	}
}

// A waiter that avoids an endpoint yields the places there to requests behind it. It yields at most
// maxYields times, since another endpoint may have no place to release. maxYieldTo bounds the time
// of yield.
const (
	maxYields  = 8
	maxYieldTo = 16
)

// yield returns the waiter that gets a place of m, whose endpoint first avoids. It is the next waiter
// near the front that does not avoid the endpoint, or else first.
func (q *queue) yield(first *waiter, m *member) *waiter {
	if first.yields == maxYields {
		return first
	}
	w := q.head
	for i := 0; i <= maxYieldTo && w != nil; i, w = i+1, w.next {
		if w != first && w.avoid != m.ep.Name && (m.exclusive() || m.takes(w.alone)) {
			first.yields++
			return w
		}
	}
	return first
}

// setServedByDials makes all requests pending except the first n, which dials will serve.
func (q *queue) setServedByDials(n int, now time.Time) {
	for q.n-q.pending < n && q.firstPending != nil {
		w := q.firstPending
		q.firstPending = w.next
		q.pending--
		w.setPending(false, now)
		q.do.wake(w, w.until(now))
	}
	for q.n-q.pending > n {
		w := q.tail
		if q.firstPending != nil {
			w = q.firstPending.prev
		}
		q.firstPending = w
		q.pending++
		w.setPending(true, now)
		q.do.wake(w, w.until(now))
	}
}

// popOverflow removes and returns the last request, or the request that fair chooses, if more than limit requests
// are pending, and otherwise returns nil. A limit of -1 is none. Resent requests stay: they are few, and were admitted
// before.
func (q *queue) popOverflow(limit int) *waiter {
	if limit < 0 || q.pending <= limit {
		return nil
	}
	w := q.worst()
	if w.resent {
		return nil
	}
	q.remove(w)
	return w
}

// outlasts reports whether a request would wait for another dial if one failed.
func (q *queue) outlasts() bool {
	for w := q.head; w != nil; w = w.next {
		if w.redials > 0 {
			return true
		}
	}
	return false
}

// fail ends the wait of each request for which giveUp returns an error.
func (q *queue) fail(giveUp func(*waiter) error) {
	for w := q.head; w != nil; {
		next := w.next
		if err := giveUp(w); err != nil {
			q.remove(w)
			q.do.answer(w, waitResult{err: err})
		}
		w = next
	}
}
