// Package fairqueue decides which waiting request gets the next place, so that the requests of one key do not take
// the places of all other keys.
//
// It is start-time fair queueing (Goyal, Vin and Cheng, 1996) over 64 queues. A request costs the time for which it
// holds its place. The next place goes to the queue that has paid least. Each key has 8 of the queues (shuffle
// sharding), and its requests go to the shortest of them, so a key that fills all of its queues leaves most queues of
// another key alone. When too many requests wait, the key with most waiting requests loses one of them, however they
// are spread over its queues (keyheap.go). Memory grows only with the number of waiting requests.
//
// A queue pays the usual cost of its requests in advance, when one of its requests gets a place. The real cost
// replaces the payment when the request gives the place back.
package fairqueue

import (
	"math"
	"math/bits"
	"time"
)

const (
	// Count is the number of queues: the number of bits of Queues.active.
	Count = 64
	// queuesPerKey is how many of the queues a key has.
	queuesPerKey = 8
	// forgetAfter is the time since the last Push after which the next Push, if no request waits, makes the queues
	// forget what they have paid.
	forgetAfter = time.Second
	// minCost is the minimum cost of a request in seconds, so that each request pays something and the turn moves on.
	minCost = 1e-6
	// costSamples is the number of requests over which the usual cost is averaged.
	costSamples = 8
)

// Payer is the queue that pays for a place; 0 = none.
type Payer uint8

// Queues holds the waiting requests, and what their queues have paid. The zero value is empty. It is not safe for
// concurrent use.
type Queues[T any] struct {
	// paid holds the virtual time of each queue: the place-seconds that the queue has paid for. A queue that was
	// empty starts again at virtualTime, so that it does not profit from the time in which it was empty.
	paid        [Count]float64
	queues      [Count]queue[T]
	active      uint64  // the set of queues in which requests wait
	virtualTime float64 // what the queue of the latest turn had paid before that turn
	usualCost   float64 // mean cost of all requests, in seconds
	lastPush    time.Time
	pushes      uint64 // number of calls of Push
	byKey       keyHeap[T]
}

type queue[T any] struct {
	first, last   *Item[T]
	waiting       int
	placesHeld    int     // places of its requests, for which it has paid in advance
	paidInAdvance float64 // sum of the payments for these places
	usualCost     float64 // mean cost of its requests, in seconds; 0 = unknown
}

// Item is a request that can wait in Queues. A new Item has a Value, and zero values otherwise.
type Item[T any] struct {
	Value T

	prev, next *Item[T]
	number     uint64 // the value of Queues.pushes at Push; newer requests have higher numbers
	queue      Payer  // the queue that Push chose; 0 = none
	waiting    bool
	links      keyLinks[T]
}

// Push adds item to the end of key's shortest queue.
func (q *Queues[T]) Push(item *Item[T], key uint64, now time.Time) {
	if q.active == 0 && now.Sub(q.lastPush) > forgetAfter {
		q.forgetPaid()
	}
	q.lastPush = now
	q.pushes++
	i := q.shortest(key)
	item.number, item.queue, item.waiting = q.pushes, Payer(i+1), true
	s := &q.queues[i]
	if s.waiting == 0 {
		q.active |= 1 << i
		q.paid[i] = max(q.paid[i], q.virtualTime)
		s.first = item
	} else {
		item.prev, s.last.next = s.last, item
	}
	s.last = item
	s.waiting++
	q.byKey.add(item, key)
}

// forgetPaid makes all queues equal, except for payments in advance. It must be called while no request waits.
func (q *Queues[T]) forgetPaid() {
	q.virtualTime, q.byKey = 0, keyHeap[T]{}
	for i := range q.queues {
		q.paid[i] = q.queues[i].paidInAdvance
	}
}

// allQueues holds the indices of all queues.
var allQueues = func() (d [Count]uint8) {
	for i := range d {
		d[i] = uint8(i)
	}
	return d
}()

// shortest returns the queue of key in which a new request would be served first. It draws the key's queues at
// random, seeded by key, so different keys rarely have more than a few queues in common.
func (q *Queues[T]) shortest(key uint64) int {
	undealt := allQueues
	best, lowest := 0, math.Inf(1)
	for i := range queuesPerKey {
		remaining := uint64(Count - i)
		j := i + int(key%remaining)
		key /= remaining
		queue := int(undealt[j])
		undealt[j] = undealt[i]
		s := &q.queues[queue]
		if finish := max(q.paid[queue], q.virtualTime) + float64(s.waiting)*q.usualCostOf(s); finish < lowest {
			best, lowest = queue, finish
		}
	}
	return best
}

// usualCostOf returns the mean cost of the requests of s, or of all requests while s has none.
func (q *Queues[T]) usualCostOf(s *queue[T]) float64 {
	if s.usualCost > 0 {
		return s.usualCost
	}
	return max(q.usualCost, minCost)
}

// Remove removes item if it waits. A request that gets a place must be removed before Lend.
func (q *Queues[T]) Remove(item *Item[T]) {
	if !item.waiting {
		return
	}
	i := item.queue - 1
	s := &q.queues[i]
	if item.prev == nil {
		s.first = item.next
	} else {
		item.prev.next = item.next
	}
	if item.next == nil {
		s.last = item.prev
	} else {
		item.next.prev = item.prev
	}
	item.prev, item.next, item.waiting = nil, nil, false
	q.byKey.remove(item)
	s.waiting--
	if s.waiting == 0 {
		q.active &^= 1 << i
	}
}

// nextQueue returns the queue whose turn it is, and what that queue has paid. If no request waits, paid is +Inf.
func (q *Queues[T]) nextQueue() (i int, paid float64) {
	paid = math.Inf(1)
	for set := q.active; set != 0; set &= set - 1 {
		if at := bits.TrailingZeros64(set); q.paid[at] < paid {
			i, paid = at, q.paid[at]
		}
	}
	return i, paid
}

// First returns the request whose turn it is, or nil if none waits.
func (q *Queues[T]) First() *Item[T] {
	i, _ := q.nextQueue()
	return q.queues[i].first
}

// NewestOfLargest returns the newest request of the key with most waiting requests, or nil if no request waits. Of up
// to 64 keys with equally many requests, it chooses the key whose queue has paid most.
func (q *Queues[T]) NewestOfLargest() *Item[T] { return q.byKey.largest(&q.paid) }

// Lend pays in advance for the place of item, which Remove has just removed. The result must be given to Return.
func (q *Queues[T]) Lend(item *Item[T]) Payer { return q.lend(int(item.queue) - 1) }

// LendTo is Lend for a request of key that did not wait in q. The shortest queue of key pays.
func (q *Queues[T]) LendTo(key uint64) Payer {
	i := q.shortest(key)
	q.paid[i] = max(q.paid[i], q.virtualTime)
	return q.lend(i)
}

func (q *Queues[T]) lend(i int) Payer {
	_, lowest := q.nextQueue() // bounds virtualTime if the request got its place out of turn
	q.virtualTime = max(q.virtualTime, min(q.paid[i], lowest))
	s := &q.queues[i]
	cost := q.usualCostOf(s)
	q.paid[i] += cost
	s.paidInAdvance += cost
	s.placesHeld++
	return Payer(i + 1)
}

// Return replaces payer's payment in advance by the real cost: held is how long the request held its place. A
// negative held means that the place was not used, which costs nothing. The zero Payer has no effect.
func (q *Queues[T]) Return(payer Payer, held time.Duration) {
	if payer == 0 || q.queues[payer-1].placesHeld == 0 { // the place was lent by Queues that q has replaced
		return
	}
	s := &q.queues[payer-1]
	paid := s.paidInAdvance / float64(s.placesHeld)
	s.placesHeld--
	s.paidInAdvance -= paid
	if s.placesHeld == 0 {
		s.paidInAdvance = 0 // without errors of rounding
	}
	q.paid[payer-1] -= paid
	if held < 0 {
		return
	}
	cost := max(held.Seconds(), minCost)
	q.paid[payer-1] += cost
	learn(&s.usualCost, cost)
	learn(&q.usualCost, cost)
}

// learn adds cost to a moving mean. A mean of 0 has no value yet.
func learn(mean *float64, cost float64) {
	if *mean == 0 {
		*mean = cost
	} else {
		*mean += (cost - *mean) / costSamples
	}
}

// Active returns the number of queues in which requests wait.
func (q *Queues[T]) Active() int { return bits.OnesCount64(q.active) }
