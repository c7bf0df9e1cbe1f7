package chaos

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"adbuffer/loadtest/internal/load"
)

// tally counts events by name, and responses by status and source.
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
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]uint64{}
	}
	t.count[key]++
}

// all returns the keys by falling count, their counts, and the sum of the counts.
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

// overrun records by how much responses came after their deadlines.
type overrun struct {
	mu     sync.Mutex
	inTime uint64
	late   *hdrhistogram.Histogram
}

func (o *overrun) observe(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d <= 0 {
		o.inTime++
		return
	}
	if o.late == nil {
		o.late = load.NewHistogram()
	}
	load.Record(o.late, d)
}

func (o *overrun) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.late == nil {
		return fmt.Sprintf("%d in time, none late", o.inTime)
	}
	l := load.LatencyOf(o.late)
	return fmt.Sprintf("%d in time, %d late, half of them by at most %.1f ms, 99 %% by %.1f, all by %.1f", o.inTime, o.late.TotalCount(), l.P50, l.P99, l.Max)
}
