package logs

import (
	"sync"
	"time"
)

const (
	// keptFailures is how many failures are kept.
	keptFailures = 50
	// failuresPerSecond bounds the cost of keeping failures while all requests fail.
	failuresPerSecond = 20
)

// failures keeps the last requests that failed, also while the access log is off.
type failures struct {
	second window

	mu   sync.Mutex // guards the fields below
	kept [keptFailures]*Record
	n    int // number of failures so far
}

func (f *failures) wants(now time.Time) bool { return f.second.allow(now, failuresPerSecond) }

func (f *failures) add(r *Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[f.n%keptFailures] = r
	f.n++
}

func (f *failures) last() []*Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Record, 0, min(f.n, keptFailures))
	for i := range cap(all) {
		all = append(all, f.kept[(f.n-1-i)%keptFailures])
	}
	return all
}
