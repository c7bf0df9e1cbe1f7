package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"adbuffer/internal/wire/logs"
)

// unrouted counts requests that match no route by their paths, of the last 30 to 60 s. Clients choose the paths, so their
// number and their length are bounded.
//
// With more than maxPaths paths, a new path replaces the path with the lowest count, and continues that count as its
// excess ("Space-Saving" of Metwally, Agrawal and El Abbadi). So a path of more than 1/maxPaths of the requests is always
// among those that are kept, however many other paths hide it.
type unrouted struct {
	mu      sync.Mutex // guards the fields below
	begun   time.Time  // when current began
	current []pathCount
	before  []pathCount // of the period before current
}

type pathCount struct {
	path          string
	count, excess uint64 // count - excess requests were counted for path, and perhaps more
}

const (
	maxPaths     = 64
	maxPathBytes = 80 // of a path that is longer, the rest is cut off
	pathPeriod   = 30 * time.Second
)

// PathCount is how many requests had a path, at least.
type PathCount struct {
	Path  string
	Count uint64
}

func (u *unrouted) add(path []byte, now time.Time) {
	path = path[:min(len(path), maxPathBytes)]
	u.mu.Lock()
	defer u.mu.Unlock()
	u.age(now)
	least := 0
	for i := range u.current {
		c := &u.current[i]
		if c.path == string(path) {
			c.count++
			return
		}
		if c.count < u.current[least].count {
			least = i
		}
	}
	if len(u.current) < maxPaths {
		u.current = append(u.current, pathCount{string(path), 1, 0})
		return
	}
	c := &u.current[least]
	*c = pathCount{string(path), c.count + 1, c.count}
}

func (u *unrouted) age(now time.Time) {
	switch passed := now.Sub(u.begun); {
	case passed >= 2*pathPeriod:
		u.begun, u.current, u.before = now, nil, nil
	case passed >= pathPeriod:
		u.begun, u.current, u.before = now, nil, u.current
	}
}

// commonest returns the n paths with the most requests, as logs may show them.
func (u *unrouted) commonest(n int, now time.Time) []PathCount {
	u.mu.Lock()
	u.age(now)
	sum := make(map[string]uint64)
	for _, c := range slices.Concat(u.before, u.current) {
		sum[c.path] += c.count - c.excess
	}
	u.mu.Unlock()
	all := make([]PathCount, 0, len(sum))
	for path, count := range sum {
		all = append(all, PathCount{logs.Visible([]byte(path)), count})
	}
	slices.SortFunc(all, func(a, b PathCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Path, b.Path))
	})
	return all[:min(len(all), n)]
}

// Unrouted returns the n paths that most requests of the last 30 to 60 s had, of those that matched no route.
func (p *Proxy) Unrouted(n int) []PathCount { return p.unrouted.commonest(n, time.Now()) }
