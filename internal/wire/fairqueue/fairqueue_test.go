package fairqueue

import (
	"hash/maphash"
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"adbuffer/internal/test/testsupport"
)

// sim is an SSP with some places, a full queue of limited length, and requests that give up.
type sim struct {
	q      Queues[request]
	limit  int           // of the queue
	gives  time.Duration // how long a request waits; 0 = for ever
	free   int           // places
	now    time.Time
	queued []*Item[request]
	busy   []lent
	served map[uint64]time.Duration // place time of each key
	lost   map[uint64]int           // requests of each key that got no place
	got    map[uint64]int           // and that got one
}

type request struct {
	key   uint64
	holds time.Duration
	came  time.Time
}

type lent struct {
	by    Payer
	of    request
	since time.Time
}

func newSim(places, limit int) *sim {
	return &sim{limit: limit, free: places, now: time.Unix(1e9, 0), served: map[uint64]time.Duration{}, lost: map[uint64]int{}, got: map[uint64]int{}}
}

// key returns the key of a number, as the proxy hashes it.
func key(n int) uint64 {
	return maphash.Comparable(testSeed, n)
}

var testSeed = maphash.MakeSeed()

func (s *sim) ask(key uint64, holds time.Duration) {
	it := &Item[request]{Value: request{key, holds, s.now}}
	if s.free > 0 && s.q.Active() == 0 {
		s.free--
		s.busy = append(s.busy, lent{of: it.Value, since: s.now})
		s.got[key]++
		return
	}
	s.q.Push(it, key, s.now)
	s.queued = append(s.queued, it)
	if len(s.queued) > s.limit {
		s.drop(s.q.NewestOfLargest())
	}
}

func (s *sim) drop(it *Item[request]) {
	s.q.Remove(it)
	s.queued = slices.DeleteFunc(s.queued, func(other *Item[request]) bool { return other == it })
	s.lost[it.Value.key]++
}

// step runs a millisecond.
func (s *sim) step() {
	s.now = s.now.Add(time.Millisecond)
	s.busy = slices.DeleteFunc(s.busy, func(l lent) bool {
		held := s.now.Sub(l.since)
		if held < l.of.holds {
			return false
		}
		s.q.Return(l.by, held)
		s.served[l.of.key] += held
		s.free++
		return true
	})
	for s.gives > 0 && len(s.queued) > 0 && s.now.Sub(s.queued[0].Value.came) >= s.gives {
		s.drop(s.queued[0])
	}
	for s.free > 0 && s.q.Active() > 0 {
		it := s.q.First()
		s.q.Remove(it)
		s.queued = slices.DeleteFunc(s.queued, func(other *Item[request]) bool { return other == it })
		s.free--
		s.busy = append(s.busy, lent{s.q.Lend(it), it.Value, s.now})
		s.got[it.Value.key]++
	}
}

// Forty keys use 85 % of the places. Another key sends ten and a hundred times as much as one of them.
func TestKeyThatSendsTooMuchTakesNothingFromTheOthers(t *testing.T) {
	const keys, places, hold = 40, 30, 20 * time.Millisecond
	for _, times := range []int{10, 100} {
		for _, queue := range []int{64, 512} {
			s := newSim(places, queue)
			s.gives = 50 * time.Millisecond
			noisy := key(-1)
			for ms := range 2000 {
				// 1.28 requests a millisecond are 85 % of 30 places.
				for i := range keys {
					if (ms*32+i*25)%1000 < 32 {
						s.ask(key(i), hold)
					}
				}
				for i := range times {
					if (ms*32+i*25)%1000 < 32 {
						s.ask(noisy, hold)
					}
				}
				s.step()
			}
			lost, all := 0, 0
			for i := range keys {
				lost += s.lost[key(i)]
				all += s.lost[key(i)] + s.got[key(i)]
			}
			testsupport.True(t, float64(lost) <= 0.01*float64(all), "%d times, a queue of %d: the other keys lost %d of %d requests", times, queue, lost, all)
			if s.lost[noisy] == 0 || s.got[noisy] < 200 {
				t.Errorf("%d times, a queue of %d: the key lost %d requests, and %d were served; it should have what is left", times, queue, s.lost[noisy], s.got[noisy])
			}
		}
	}
}

// Requests of one key fill a queue of any length. Another key's newcomers take places of it until each has half.
func TestFullQueueIsSharedByKeysNotByQueues(t *testing.T) {
	for _, limit := range []int{1, 2, 8, 9, 64, 500} {
		s := newSim(0, limit)
		for range limit {
			s.ask(key(0), 0)
		}
		for range limit {
			s.ask(key(1), 0)
		}
		testsupport.Equal(t, s.lost[key(0)], limit/2, "in a queue of %[2]d, the key that filled it lost %[1]d requests", limit)
		for n := range limit { // other keys, a request each
			if n < limit/2-1 {
				s.ask(key(2+n), 0)
				testsupport.MustEqual(t, s.lost[key(2+n)], 0, "in a queue of %[2]d, newcomer %[3]d was refused: %[1]d", limit, n)
			}
		}
	}
}

// twoKeys returns two keys that share no queue.
func twoKeys() (a, b uint64) {
	a = key(0)
	for i := 1; ; i++ {
		b = key(i)
		if !slices.ContainsFunc(handOf(a), func(q int) bool { return slices.Contains(handOf(b), q) }) {
			return a, b
		}
	}
}

// fill keeps n requests of key in the queue.
func (s *sim) fill(key uint64, holds time.Duration, n int) {
	for _, it := range s.queued {
		if it.Value.key == key {
			n--
		}
	}
	for range n {
		s.ask(key, holds)
	}
}

// A key that has sent nothing for long does not save up its unused share.
func TestKeySavesNothing(t *testing.T) {
	s := newSim(20, math.MaxInt)
	early, late := twoKeys()
	for range 1000 {
		s.fill(early, 10*time.Millisecond, 100)
		s.step()
	}
	before := s.served[early]
	for range 500 {
		s.fill(early, 10*time.Millisecond, 100)
		s.fill(late, 10*time.Millisecond, 100)
		s.step()
	}
	a, b := (s.served[early] - before).Seconds(), s.served[late].Seconds()
	testsupport.True(t, a/b >= 0.8 && a/b <= 1.25, "from then on the early key had places for %.1f s, the late one for %.1f s", a, b)
}

// What a key has paid does not count after a second in which no request began to wait.
func TestQueuesForget(t *testing.T) {
	for _, c := range []struct {
		pause time.Duration
		first string
	}{{time.Second, "other"}, {time.Second + time.Millisecond, "paid"}} {
		var q Queues[string]
		now := time.Unix(1e9, 0)
		payer, other := twoKeys()
		for range queuesPerKey { // each of its queues pays
			it := &Item[string]{}
			q.Push(it, payer, now)
			q.Remove(it)
			q.Return(q.Lend(it), time.Minute)
		}
		now = now.Add(c.pause)
		a, b := &Item[string]{Value: "paid"}, &Item[string]{Value: "other"}
		q.Push(a, payer, now)
		q.Push(b, other, now)
		// Equal queues have their turns in the order of their numbers.
		if c.first == "paid" {
			testsupport.Equal(t, q.paid[a.queue-1], q.paid[b.queue-1], "after %[2]v the queues have paid %[1]v and %[3]v", c.pause, q.paid[b.queue-1])
		} else if got := q.First().Value; got != c.first {
			t.Errorf("after %v the turn is of the key that has %s", c.pause, got)
		}
	}
}

// Queues of an older setting return their places to queues that know nothing of them.
func TestUnknownPlaceCostsNothing(t *testing.T) {
	var q Queues[int]
	q.Return(0, time.Second)
	q.Return(5, time.Second)
	testsupport.True(t, q.paid == [Count]float64{} && q.queues[4].placesHeld == 0, "%+v", q)
}

func TestHundredThousandKeysTakeNoMemory(t *testing.T) {
	var q Queues[int]
	testsupport.AtMost(t, unsafe.Sizeof(q), 8<<10, "the queues of an SSP take %d bytes")
	it, n, now := &Item[int]{}, uint64(0), time.Unix(1e9, 0)
	if allocs := testing.AllocsPerRun(100_000, func() {
		n++
		q.Push(it, n*0x9e3779b97f4a7c15, now)
		first := q.First()
		q.NewestOfLargest()
		q.Remove(first)
		q.Return(q.Lend(first), time.Millisecond)
	}); allocs != 0 {
		t.Errorf("%v allocations a request, want none", allocs)
	}
}

// BenchmarkQueues measures a request that waits, gets a place and releases it, while requests wait in
// all queues.
func BenchmarkQueues(b *testing.B) {
	var q Queues[int]
	now := time.Unix(1e9, 0)
	for i := range 512 {
		q.Push(&Item[int]{}, key(i), now)
	}
	it := &Item[int]{}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		q.Push(it, key(n%1000), now)
		it = q.First()
		q.Remove(it)
		q.Return(q.Lend(it), time.Millisecond)
	}
}
