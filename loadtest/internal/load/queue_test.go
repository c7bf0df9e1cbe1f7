package load

import (
	"math/rand/v2"
	"testing"
)

func TestQueueKeepsTheOrderWhileItGrowsAndWraps(t *testing.T) {
	var q queue[int]
	random := rand.New(rand.NewPCG(1, 2))
	next, want := 0, 0
	for range 10_000 {
		for range random.IntN(20) {
			q.push(next)
			next++
		}
		for range min(q.count, random.IntN(21)) {
			first := *q.first()
			if got := q.pop(); got != want || first != want {
				t.Fatalf("popped %d after first was %d, want %d", got, first, want)
			}
			want++
		}
		if q.count != next-want {
			t.Fatalf("%d items, want %d", q.count, next-want)
		}
	}
	if len(q.items) > 4096 {
		t.Errorf("memory for %d items", len(q.items))
	}
}
