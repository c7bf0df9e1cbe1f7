package pool

import "time"

// queue is the requests that wait, first in, first out. All of it is guarded by
// pool.mu.
//
// Its front is covered: dials will serve those requests, as far as can be known.
// The rest wait for a place that is given back, and max_pending and
// pending_timeout bound them.
//
//	head ⇄ … ⇄ covered │ firstBeyond ⇄ … ⇄ tail
//
// Requests that had a place already come first, by their deadlines.
type queue struct {
	head, tail  *waiter
	firstBeyond *waiter // nil where all are covered
	n           int
	beyond      int // of n, those from firstBeyond on
	alone       int // of n, those that must be alone on a pipelined connection
}

func (q *queue) pushBack(w *waiter) {
	w.prev, w.next, w.queued, w.covered = q.tail, nil, true, false
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	if q.firstBeyond == nil {
		q.firstBeyond = w
	}
	q.beyond++
	q.count(w, 1)
}

// maxFront is among how many requests at the front a new one finds its place by
// deadline. Beyond them order is worth less than the time to find it.
const maxFront = 64

// pushFront is for a request that had a place already: the connection was stale,
// or the SSP did not process the request.
func (q *queue) pushFront(w *waiter) {
	w.front = true
	at := q.head
	for range maxFront {
		if at == nil || !at.front || w.deadline.Before(at.deadline) {
			break
		}
		at = at.next
	}
	if at == nil {
		q.pushBack(w)
		return
	}
	w.prev, w.next, w.queued, w.covered = at.prev, at, true, at.covered
	at.prev = w
	if w.prev == nil {
		q.head = w
	} else {
		w.prev.next = w
	}
	if !w.covered {
		q.beyond++
		if q.firstBeyond == at {
			q.firstBeyond = w
		}
	}
	q.count(w, 1)
}

func (q *queue) remove(w *waiter) {
	if !w.covered {
		q.beyond--
		if q.firstBeyond == w {
			q.firstBeyond = w.next
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
}

func (q *queue) count(w *waiter, n int) {
	q.n += n
	if w.alone {
		q.alone += n
	}
}

// cover makes the first n covered, and no others.
func (q *queue) cover(n int, now time.Time) {
	for q.n-q.beyond < n && q.firstBeyond != nil {
		w := q.firstBeyond
		q.firstBeyond = w.next
		q.beyond--
		w.setCovered(true, now)
	}
	for q.n-q.beyond > n {
		w := q.tail
		if q.firstBeyond != nil {
			w = q.firstBeyond.prev
		}
		q.firstBeyond = w
		q.beyond++
		w.setCovered(false, now)
	}
}
