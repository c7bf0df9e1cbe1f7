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

// failures keeps the last requests that failed, even while the access log is off.
type failures struct {
	second secondCounter

	mu    sync.Mutex // guards the fields below
	ring  [keptFailures]*Record
	total int // number of failures that were ever added
}

func (f *failures) wants(now time.Time) bool { return f.second.allow(now, failuresPerSecond) }

func (f *failures) add(r *Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring[f.total%keptFailures] = r
	f.total++
}

func (f *failures) last() []*Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Record, 0, min(f.total, keptFailures))
	for i := range cap(all) {
		all = append(all, f.ring[(f.total-1-i)%keptFailures])
	}
	return all
}
