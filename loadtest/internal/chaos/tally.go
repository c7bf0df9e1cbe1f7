package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// tally counts events by name, and keeps the first examples of each.
type tally struct {
	mu       sync.Mutex // guards the fields below
	count    map[string]uint64
	examples map[string][]string
}

// maxExamples is how many examples of an event are kept and printed.
const maxExamples = 5

// add counts an event, and returns how often it has happened. An example may be "".
func (t *tally) add(name, example string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count, t.examples = map[string]uint64{}, map[string][]string{}
	}
	t.count[name]++
	if example != "" && len(t.examples[name]) < maxExamples {
		t.examples[name] = append(t.examples[name], example)
	}
	return t.count[name]
}

// of returns how often an event happened, and examples.
func (t *tally) of(name string) (n uint64, examples []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count[name], t.examples[name]
}

// all returns the names by falling count, their counts, and the sum of the counts.
func (t *tally) all() (names []string, counts map[string]uint64, sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts = maps.Clone(t.count)
	for name, n := range counts {
		names, sum = append(names, name), sum+n
	}
	slices.SortFunc(names, func(a, b string) int { return int(counts[b]) - int(counts[a]) })
	return names, counts, sum
}

// overrun records by how much responses came after their deadlines.
type overrun struct {
	mu           sync.Mutex // guards the fields below
	inTime, late uint64
	longest      time.Duration
}

func (o *overrun) observe(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d <= 0 {
		o.inTime++
	} else {
		o.late++
	}
	o.longest = max(o.longest, d)
}

func (o *overrun) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%d in time, %d late by at most %v", o.inTime, o.late, o.longest.Round(time.Millisecond))
}
