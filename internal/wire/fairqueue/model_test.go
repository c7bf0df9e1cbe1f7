package fairqueue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// model is fair queueing over slices. It keeps each payment on its own.
type model struct {
	waiting  [Count][]*Item[int]
	keys     map[*Item[int]]uint64 // of the requests that wait
	paid     [Count]float64
	advances [Count][]float64
	usual    [Count]float64
	now, all float64
	pushed   time.Time
}

// handOf returns the queues of key.
func handOf(key uint64) (hand []int) {
	var deck []int
	for i := range Count {
		deck = append(deck, i)
	}
	for i := range 8 {
		j := i + int(key%uint64(Count-i))
		key /= uint64(Count - i)
		deck[i], deck[j] = deck[j], deck[i]
	}
	return deck[:8]
}

func (m *model) cost(i int) float64 {
	if m.usual[i] > 0 {
		return m.usual[i]
	}
	return max(m.all, 1e-6)
}

// wantChosen checks that a request of key goes to queue i, the one of the key's queues in which it would be served
// first. Two queues may differ only by rounding.
func (m *model) wantChosen(t *testing.T, i int, key uint64) {
	t.Helper()
	hand := handOf(key)
	at := func(i int) float64 { return max(m.paid[i], m.now) + float64(len(m.waiting[i]))*m.cost(i) }
	if !slices.Contains(hand, i) || slices.ContainsFunc(hand, func(other int) bool { return at(other) < at(i) && !near(at(other), at(i)) }) {
		t.Fatalf("a request comes to queue %d at %v; it should come to the first of %v", i, at(i), hand)
	}
}

func (m *model) empty() bool {
	return !slices.ContainsFunc(m.waiting[:], func(w []*Item[int]) bool { return len(w) > 0 })
}

func (m *model) push(t *testing.T, it *Item[int], key uint64, now time.Time) {
	if m.empty() && now.Sub(m.pushed) > time.Second {
		m.now = 0
		for i := range m.paid {
			m.paid[i] = sum(m.advances[i])
		}
	}
	m.pushed = now
	i := int(it.queue) - 1
	m.wantChosen(t, i, key)
	if len(m.waiting[i]) == 0 {
		m.paid[i] = max(m.paid[i], m.now)
	}
	m.waiting[i] = append(m.waiting[i], it)
	m.keys[it] = key
}

func sum(all []float64) (n float64) {
	for _, a := range all {
		n += a
	}
	return n
}

// find returns the queue in which it waits, or -1.
func (m *model) find(it *Item[int]) int {
	return slices.IndexFunc(m.waiting[:], func(w []*Item[int]) bool { return slices.Contains(w, it) })
}

func (m *model) remove(it *Item[int]) {
	i := m.find(it)
	m.waiting[i] = slices.DeleteFunc(m.waiting[i], func(other *Item[int]) bool { return other == it })
	delete(m.keys, it)
}

// largest returns the newest requests of the keys of which most requests wait, how many these are, and the most
// that the queue of such a request has paid.
func (m *model) largest() (largest []*Item[int], most int, paid float64) {
	of, newest := make(map[uint64]int), make(map[uint64]*Item[int])
	for it, key := range m.keys {
		of[key]++
		most = max(most, of[key])
		if newest[key] == nil || it.number > newest[key].number {
			newest[key] = it
		}
	}
	for key, it := range newest {
		if of[key] == most {
			largest = append(largest, it)
			paid = max(paid, m.paid[m.find(it)])
		}
	}
	return largest, most, paid
}

func (m *model) least() float64 {
	least := math.Inf(1)
	for i, w := range m.waiting {
		if len(w) > 0 {
			least = min(least, m.paid[i])
		}
	}
	return least
}

func (m *model) lend(i int) {
	m.now = max(m.now, min(m.paid[i], m.least()))
	m.advances[i] = append(m.advances[i], m.cost(i))
	m.paid[i] += m.cost(i)
}

// release takes back the mean of what queue i has paid in advance.
func (m *model) release(i int, held time.Duration) {
	mean := sum(m.advances[i]) / float64(len(m.advances[i]))
	m.advances[i] = m.advances[i][1:]
	for j := range m.advances[i] {
		m.advances[i][j] = mean
	}
	m.paid[i] -= mean
	if held < 0 {
		return
	}
	cost := max(held.Seconds(), 1e-6)
	m.paid[i] += cost
	for _, mean := range []*float64{&m.usual[i], &m.all} {
		if *mean == 0 {
			*mean = cost
		}
		*mean += (cost - *mean) / 8
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)) }

// check compares the queues with the model, after each step.
func (m *model) check(t *testing.T, q *Queues[int]) {
	t.Helper()
	active := 0
	testsupport.MustTrue(t, near(q.virtualTime, m.now), "the virtual time is %v, want %v", q.virtualTime, m.now)
	for i, w := range m.waiting {
		if len(w) > 0 {
			active++
		}
		if q.queues[i].placesHeld != len(m.advances[i]) || !near(q.paid[i], m.paid[i]) || !near(q.queues[i].paidInAdvance, sum(m.advances[i])) {
			t.Fatalf("queue %d has paid %v, of it %v in advance for %d places; want %v, %v, %d",
				i, q.paid[i], q.queues[i].paidInAdvance, q.queues[i].placesHeld, m.paid[i], sum(m.advances[i]), len(m.advances[i]))
		}
		var got []*Item[int]
		for it := q.queues[i].first; it != nil; it = it.next {
			got = append(got, it)
		}
		testsupport.MustTrue(t, slices.Equal(got, w), "%d requests wait in queue %d in an order of their own, want %d", len(got), i, len(w))
	}
	testsupport.MustEqual(t, q.Active(), active, "%d queues are active")
	first, largest := q.First(), q.NewestOfLargest()
	if active == 0 {
		testsupport.MustTrue(t, first == nil && largest == nil, "a request is found in empty queues")
		return
	}
	if i := m.find(first); m.waiting[i][0] != first || !near(m.paid[i], m.least()) {
		t.Fatalf("the turn is of queue %d, which has paid %v; another has paid %v", i, m.paid[i], m.least())
	}
	all, most, paid := m.largest()
	if !slices.Contains(all, largest) || len(all) <= maxTied && !near(m.paid[m.find(largest)], paid) {
		t.Fatalf("a request of a key with %d would be refused, whose queue has paid %v; want the newest of a key with %d, whose queue has paid %v",
			largest.links.waiting, m.paid[m.find(largest)], most, paid)
	}
}

// Random requests come, get places in turn or out of turn, give up, and release their places.
func TestQueuesAgreeWithAModel(t *testing.T) {
	testsupport.Long(t)
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 0))
		var q Queues[int]
		m := model{keys: make(map[*Item[int]]uint64)}
		var all []*Item[int] // that wait
		var lent []Payer
		keys, now := 1+r.Uint64N(200), time.Unix(1e9, 0)
		for range 1500 {
			switch n := r.IntN(10); {
			case n < 4:
				it := &Item[int]{}
				key := r.Uint64N(keys) * 0x9e3779b97f4a7c15
				q.Push(it, key, now)
				m.push(t, it, key, now)
				all = append(all, it)
			case n < 7 && len(all) > 0: // a place
				it := q.First()
				if r.IntN(5) == 0 {
					it = all[r.IntN(len(all))]
				}
				i := m.find(it)
				q.Remove(it)
				lent = append(lent, q.Lend(it))
				m.remove(it)
				m.lend(i)
				all = slices.DeleteFunc(all, func(other *Item[int]) bool { return other == it })
				testsupport.MustTrue(t, int(lent[len(lent)-1]) == i+1, "queue %d pays for a request of queue %d", int(lent[len(lent)-1])-1, i)
			case n == 7 && len(all) > 0: // it gives up
				at := r.IntN(len(all))
				q.Remove(all[at])
				q.Remove(all[at]) // has no effect
				m.remove(all[at])
				all = slices.Delete(all, at, at+1)
			case n == 8 && len(lent) > 0:
				at, held := r.IntN(len(lent)), time.Duration(r.IntN(300)-10)*time.Millisecond
				q.Return(lent[at], held)
				m.release(int(lent[at])-1, held)
				lent = slices.Delete(lent, at, at+1)
			case n == 9 && r.IntN(20) == 0: // a request that was in front
				key := r.Uint64N(keys) * 0x9e3779b97f4a7c15
				by := q.LendTo(key)
				i := int(by) - 1
				m.wantChosen(t, i, key)
				m.paid[i] = max(m.paid[i], m.now)
				m.lend(i)
				lent = append(lent, by)
			case n == 9 && r.IntN(10) == 0: // a quiet time
				for _, it := range all {
					q.Remove(it)
					m.remove(it)
				}
				all, now = nil, now.Add(time.Duration(r.IntN(3))*time.Second)
			}
			now = now.Add(time.Duration(r.IntN(3)) * time.Millisecond)
			m.check(t, &q)
		}
	}
}
