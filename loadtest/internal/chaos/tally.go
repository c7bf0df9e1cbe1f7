package chaos

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// tally counts responses by status and source.
type tally struct {
	mu    sync.Mutex
	count map[string]uint64
}

func (t *tally) add(status int, source string) {
	key := source
	if status != 0 {
		key = fmt.Sprintf("%d %s", status, source)
	}
	t.mu.Lock()
	t.count[key]++
	t.mu.Unlock()
}

// all returns the counts, the largest first, and their sum.
func (t *tally) all() (keys []string, counts map[string]uint64, sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts = make(map[string]uint64, len(t.count))
	for key, n := range t.count {
		keys, counts[key], sum = append(keys, key), n, sum+n
	}
	slices.SortFunc(keys, func(a, b string) int { return int(counts[b]) - int(counts[a]) })
	return keys, counts, sum
}

// overrun keeps by how much responses came after their deadlines.
type overrun struct {
	mu    sync.Mutex
	count [len(overrunSteps) + 1]uint64
	most  time.Duration
}

var overrunSteps = [...]time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

func (o *overrun) observe(d time.Duration) {
	i := 0
	for i < len(overrunSteps) && d > overrunSteps[i] {
		i++
	}
	o.mu.Lock()
	o.count[i]++
	o.most = max(o.most, d)
	o.mu.Unlock()
}

func (o *overrun) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := fmt.Sprintf("%d in time", o.count[0])
	for i, step := range overrunSteps[1:] {
		if n := o.count[i+1]; n > 0 {
			text += fmt.Sprintf(", %d up to %v late", n, step)
		}
	}
	return text + fmt.Sprintf(", at most %v late", max(0, o.most).Round(time.Millisecond))
}
