package pool

import (
	"time"

	"adbuffer/internal/wire/fairqueue"
)

// queue holds the requests that wait for a place, first in, first out, unless fair decides. Pool.mu guards it.
//
// Dials under way will serve the requests at the front; see growth.servedByDials. The other requests are pending: they
// wait for a place to be released; max_pending bounds their number, and pending_timeout their wait.
//
//	head ⇄ … ⇄ waits for a dial │ firstPending ⇄ … ⇄ tail
//
// Requests that had a place before (waiter.front) come first, ordered by their deadlines.
type queue struct {
	head, tail   *waiter
	firstPending *waiter // nil if none is pending
	n            int
	pending      int // requests that are pending; at most n
	alone        int // requests that must be alone on a pipelined connection; at most n
	// fair also holds the requests that never had a place; nil without server.fairness.key. See fairness.go.
	fair *fairqueue.Queues[*waiter]
	do   *actions // of the machine
}

// push adds w at the back, or among the requests at the front if w had a place before.
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

// A waiter that avoids an endpoint yields the places of that endpoint to requests behind it. It yields at most maxYields
// times, since the other endpoints may have no place to release. maxYieldScan bounds how many waiters yield examines, and
// so its time.
const (
	maxYields    = 8
	maxYieldScan = 16
)

// yield returns the waiter that gets a place of m, whose endpoint first avoids: the frontmost other waiter that does not
// avoid the endpoint and that m has a place for, or else first.
func (q *queue) yield(first *waiter, m *member) *waiter {
	if first.yields == maxYields {
		return first
	}
	w := q.head
	for i := 0; i <= maxYieldScan && w != nil; i, w = i+1, w.next {
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

// popOverflow removes and returns the request that worst chooses if more than limit requests are pending. Otherwise, or
// if limit is -1, it returns nil. Resent requests stay: they are few, and were admitted before.
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

// hasRedials reports whether some request would wait for another dial if the dial that it waits for failed.
func (q *queue) hasRedials() bool {
	for w := q.head; w != nil; w = w.next {
		if w.redials > 0 {
			return true
		}
	}
	return false
}

// fail removes each request for which giveUp returns an error, and ends its wait with that error.
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
