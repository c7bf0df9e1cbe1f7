package logs

import (
	"slices"
	"sync"
	"time"
)

// Failed says what of a request failed.
type Failed uint8

// Nothing failed, or only legs of a request that succeeded, or the request.
const (
	NotFailed Failed = iota
	LegFailed
	RequestFailed
)

const (
	// keptFailures is how many failures of each kind are kept.
	keptFailures = 50
	// failuresPerSecond bounds the cost of keeping failures while all requests fail.
	failuresPerSecond = 20
)

// failures keeps the last requests that failed in one way, even while the access log is off.
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

func (f *failures) appendAll(to []*Record) []*Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(to, f.ring[:min(f.total, keptFailures)]...)
}

// newestFirst sorts records by the time at which their requests ended.
func newestFirst(all []*Record) []*Record {
	slices.SortStableFunc(all, func(a, b *Record) int { return b.At.Compare(a.At) })
	return all
}
