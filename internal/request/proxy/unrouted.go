package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"adbuffer/internal/wire/logs"
)

// unrouted counts, by path, the requests of the current and the previous period that match no route. Clients choose the
// paths, so the number of paths and their length are bounded.
//
// Once maxPaths paths are kept, a new path replaces the path with the lowest count. It starts from that count, which is
// also its excess (the Space-Saving algorithm of Metwally, Agrawal and El Abbadi). So a path with more than 1/maxPaths of
// the requests of a period is always kept, however many other paths clients send.
type unrouted struct {
	mu      sync.Mutex // guards the fields below
	begun   time.Time  // when the current period began
	current []pathEstimate
	before  []pathEstimate // of the previous period
}

// pathEstimate is a path with bounds on the number of its requests.
type pathEstimate struct {
	path          string
	count, excess uint64 // path had at least count - excess requests, and at most count
}

const (
	maxPaths     = 64
	maxPathBytes = 80 // longer paths are truncated
	pathPeriod   = 30 * time.Second
)

// PathCount is a path and the least number of requests that it can have had.
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
		u.current = append(u.current, pathEstimate{string(path), 1, 0})
		return
	}
	c := &u.current[least]
	*c = pathEstimate{string(path), c.count + 1, c.count}
}

func (u *unrouted) age(now time.Time) {
	switch passed := now.Sub(u.begun); {
	case passed >= 2*pathPeriod:
		u.begun, u.current, u.before = now, nil, nil
	case passed >= pathPeriod:
		u.begun, u.current, u.before = u.begun.Add(pathPeriod), nil, u.current
	}
}

// commonest returns the n paths with the most requests. The paths are escaped for logs.
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

// Unrouted returns the n most common paths among the requests of the last 30 to 60 s that matched no route.
func (p *Proxy) Unrouted(n int) []PathCount { return p.unrouted.commonest(n, time.Now()) }
