// Package fairqueue decides which waiting request gets the next place, so that no key of requests
// keeps the places from the other keys.
//
// It is start-time fair queueing (Goyal, Vin and Cheng, 1996) over 64 queues. A request costs the
// time for which it holds its place. The queue that has paid least comes next. A key goes to the
// shortest of its 8 queues (shuffle sharding): a key that fills all of its queues leaves most of
// another key's queues alone. When too many requests wait, the key of most of them loses one, however
// they spread over its queues (crowd.go). Memory is that of the requests that wait, and a constant.
//
// A queue pays the usual cost of its requests in advance, when it gets a place. The real cost
// replaces that when the place is free again.
package fairqueue

import (
	"math"
	"math/bits"
	"time"

	"adbuffer/internal/wire/exchange"
)

const (
	// Count is how many queues there are: as many as the set Queues.active holds.
	Count = 64
	// hand is how many of them a key has.
	hand = 8
	// forgetAfter is how long no request may wait before the queues forget what they have paid.
	forgetAfter = time.Second
	// leastCost is the least cost of a request in seconds, so that each request moves the turn on.
	leastCost = 1e-6
	// memory is of how many requests the usual cost is the mean.
	memory = 8
)

// Queues holds the requests that wait, and what their queues have paid. The zero value is empty. It
// is not safe for concurrent use.
type Queues[T any] struct {
	// paid is the virtual time of each queue: the place-seconds that it has paid for. A queue that
	// was empty begins again at now, so that nothing is saved for it.
	paid   [Count]float64
	queues [Count]queue[T]
	active uint64  // the set of queues in which requests wait
	now    float64 // virtual time: what the queue of the latest turn had paid before
	cost   float64 // usual cost of all requests, in seconds
	pushed time.Time
	count  uint64 // requests since the zero value
	crowd  crowd[T]
}

type queue[T any] struct {
	first, last *Item[T]
	waiting     int
	places      int     // for which it has paid in advance
	advance     float64 // sum of these payments
	cost        float64 // usual cost of its requests, in seconds; 0 = unknown
}

// Item is a request. Its zero value, with a Value, does not wait.
type Item[T any] struct {
	Value T

	prev, next *Item[T]
	n          uint64         // its number
	queue      exchange.Payer // chosen by Push; 0 = none
	waiting    bool
	ofKey      member[T]
}

// Push adds it at the end of the shortest queue of key.
func (q *Queues[T]) Push(it *Item[T], key uint64, now time.Time) {
	if q.active == 0 && now.Sub(q.pushed) > forgetAfter {
		q.forget()
	}
	q.pushed = now
	q.count++
	i := q.shortest(key)
	it.n, it.queue, it.waiting = q.count, exchange.Payer(i+1), true
	s := &q.queues[i]
	if s.waiting == 0 {
		q.active |= 1 << i
		q.paid[i] = max(q.paid[i], q.now)
		s.first = it
	} else {
		it.prev, s.last.next = s.last, it
	}
	s.last = it
	s.waiting++
	q.crowd.add(it, key)
}

// forget makes all queues equal, except for the places that they hold. No request waits.
func (q *Queues[T]) forget() {
	q.now, q.crowd = 0, crowd[T]{}
	for i := range q.queues {
		q.paid[i] = q.queues[i].advance
	}
}

// deck holds all queues.
var deck = func() (d [Count]uint8) {
	for i := range d {
		d[i] = uint8(i)
	}
	return d
}()

// shortest returns the queue of key in which a new request would get its place first. It deals the
// key's queues from a deck: different keys rarely have more than a few queues in common.
func (q *Queues[T]) shortest(key uint64) int {
	cards := deck
	best, least := 0, math.Inf(1)
	for i := range hand {
		left := uint64(Count - i)
		j := i + int(key%left)
		key /= left
		card := int(cards[j])
		cards[j] = cards[i]
		s := &q.queues[card]
		if at := max(q.paid[card], q.now) + float64(s.waiting)*q.usual(s); at < least {
			best, least = card, at
		}
	}
	return best
}

// usual returns the usual cost of the requests of s.
func (q *Queues[T]) usual(s *queue[T]) float64 {
	if s.cost > 0 {
		return s.cost
	}
	return max(q.cost, leastCost)
}

// Remove removes it if it waits. A request that gets a place is removed before Lend.
func (q *Queues[T]) Remove(it *Item[T]) {
	if !it.waiting {
		return
	}
	i := it.queue - 1
	s := &q.queues[i]
	if it.prev == nil {
		s.first = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		s.last = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next, it.waiting = nil, nil, false
	q.crowd.remove(it)
	s.waiting--
	if s.waiting == 0 {
		q.active &^= 1 << i
	}
}

// next returns the queue whose turn it is, and what it has paid; +Inf if no request waits.
func (q *Queues[T]) next() (i int, paid float64) {
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
	i, _ := q.next()
	return q.queues[i].first
}

// NewestOfLargest returns the newest request of the key of which most requests wait, or nil if none waits. Of up to
// 64 keys with equally many it takes the one whose queue has paid most.
func (q *Queues[T]) NewestOfLargest() *Item[T] { return q.crowd.largest(&q.paid) }

// Lend pays in advance for the place of it, which Remove has just removed. Return takes the result.
func (q *Queues[T]) Lend(it *Item[T]) exchange.Payer { return q.lend(int(it.queue) - 1) }

// LendTo is Lend for a request of key that did not wait here. Its shortest queue pays.
func (q *Queues[T]) LendTo(key uint64) exchange.Payer {
	i := q.shortest(key)
	q.paid[i] = max(q.paid[i], q.now)
	return q.lend(i)
}

func (q *Queues[T]) lend(i int) exchange.Payer {
	_, least := q.next() // the request may get its place out of turn
	q.now = max(q.now, min(q.paid[i], least))
	s := &q.queues[i]
	cost := q.usual(s)
	q.paid[i] += cost
	s.advance += cost
	s.places++
	return exchange.Payer(i + 1)
}

// Return replaces the payment in advance by the real cost. A negative held says that the place was not
// used, and costs nothing. The zero Payer has no effect.
func (q *Queues[T]) Return(by exchange.Payer, held time.Duration) {
	if by == 0 || q.queues[by-1].places == 0 { // the place was lent by a queue before this one
		return
	}
	s := &q.queues[by-1]
	paid := s.advance / float64(s.places)
	s.places--
	s.advance -= paid
	if s.places == 0 {
		s.advance = 0 // without errors of rounding
	}
	q.paid[by-1] -= paid
	if held < 0 {
		return
	}
	cost := max(held.Seconds(), leastCost)
	q.paid[by-1] += cost
	learn(&s.cost, cost)
	learn(&q.cost, cost)
}

// learn adds cost to a moving mean; 0 = it has no value yet.
func learn(mean *float64, cost float64) {
	if *mean == 0 {
		*mean = cost
	} else {
		*mean += (cost - *mean) / memory
	}
}

// Active returns in how many queues requests wait.
func (q *Queues[T]) Active() int { return bits.OnesCount64(q.active) }
