package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/fairqueue"
)

// A request that never had a place waits in queue.fair too, if fair queueing is on. fair decides which
// of these requests gets the next place, and which one a full queue refuses. The order of arrival
// decides which requests dials will serve. Requests that had a place before come first, as
// without fair queueing.

// setFair turns fair queueing on or off.
func (q *queue) setFair(on bool, now time.Time) {
	if on == (q.fair != nil) {
		return
	}
	was := q.fair
	q.fair = nil
	if on {
		q.fair = new(fairqueue.Queues[*waiter])
	}
	for w := q.head; w != nil; w = w.next {
		if on {
			q.pushFair(w, now)
		} else {
			was.Remove(&w.fair)
		}
	}
}

// needsKey reports whether ex must tell its key before it waits.
func (q *queue) needsKey(ex *exchange.Exchange) bool {
	return q.fair != nil && ex.FairKey == 0 && ex.Keyer != nil
}

func (q *queue) pushFair(w *waiter, now time.Time) {
	if q.fair != nil && !w.front {
		q.fair.Push(&w.fair, w.key, now)
	}
}

// first returns the request that gets the next place. The queue is not empty.
func (q *queue) first() *waiter {
	if q.fair != nil && !q.head.front {
		return q.fair.First().Value
	}
	return q.head
}

// worst returns the request that a full queue refuses. The queue is not empty.
func (q *queue) worst() *waiter {
	if q.fair != nil && !q.tail.front {
		return q.fair.NewestOfLargest().Value
	}
	return q.tail
}

// pay makes a fair queue pay for the place of w, which just left the queue. The ticket says which queue pays;
// 0 = none.
func (q *queue) pay(w *waiter) exchange.Ticket {
	switch {
	case q.fair == nil:
		return 0
	case w.front:
		return exchange.Ticket(q.fair.LendTo(w.key))
	default:
		return exchange.Ticket(q.fair.Lend(&w.fair))
	}
}

// repay replaces the payment for the place of ticket t, which was in use for held; unused = it costs nothing.
func (q *queue) repay(t exchange.Ticket, held time.Duration) {
	if q.fair != nil {
		q.fair.Return(fairqueue.Payer(t), held)
	}
}

// active returns in how many fair queues requests wait.
func (q *queue) active() int {
	if q.fair == nil {
		return 0
	}
	return q.fair.Active()
}
