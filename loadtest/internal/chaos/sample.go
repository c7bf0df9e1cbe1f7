package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"adbuffer/loadtest/internal/engine"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
)

// sample is the resources that a process holds, by quantity. Memory is in bytes.
type sample [quantities]float64

const (
	rss  = iota
	heap // in a pause, after a garbage collection
	files
	goroutines
	series
	quantities
)

// mayGrow is by how much each quantity may grow from the second third of a run to the last: by a share
// of itself plus a slack.
var mayGrow = [quantities]struct {
	name         string
	share, slack float64
	mib          bool
}{
	rss:        {"resident memory", 0.15, 8 << 20, true},
	heap:       {"heap after a collection", 0.10, 2 << 20, true},
	files:      {"descriptors", 0, 4, false},
	goroutines: {"goroutines", 0.1, 15, false},
	series:     {"series", 0, 0, false},
}

// zeroAtRest are the metrics that must be 0 while clients pause.
var zeroAtRest = []string{
	"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_buffered_bytes",
	"adbuffer_pool_places_in_use", "adbuffer_pool_pending_requests", "adbuffer_uploads",
}

// take samples the process that serves the instance. It also returns the sum of the series of each
// metric.
func (st *instance) take() (s sample, sums map[string]float64, err error) {
	sums = map[string]float64{}
	a := st.process.Load()
	err = a.Series(func(name, _ string, v float64) {
		s[series]++
		sums[name] += v
	})
	if err != nil {
		return s, nil, err
	}
	u, err := load.Read(a.PID)
	s[rss], s[files] = float64(u.RSS), float64(u.Files)
	s[heap], s[goroutines] = sums["go_memstats_heap_alloc_bytes"], sums["go_goroutines"]
	return s, sums, err
}

// settleTime is longer than pools keep idle connections, by more than the second after which the
// janitor looks again.
const settleTime = 3500 * time.Millisecond

// sampleAtRest samples an instance while clients pause. It waits until nothing is in use.
func (r *run) sampleAtRest(ctx context.Context, st *instance) error {
	var left []string
	for end := time.Now().Add(15 * time.Second); ; {
		_, sums, err := st.take()
		if err != nil {
			return err
		}
		left = left[:0]
		for _, name := range zeroAtRest {
			if sums[name] != 0 {
				left = append(left, fmt.Sprintf("%s %v", name, sums[name]))
			}
		}
		if len(left) == 0 || ctx.Err() != nil {
			break
		}
		if time.Now().After(end) {
			r.broken.add(returned, "%s, %v after the last request: %s", st.name, 15*time.Second, strings.Join(left, ", "))
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	// A heap profile with gc=1 and debug=1 has the size of the heap just after a collection. The second
	// collection also frees the contents of sync.Pools.
	var live float64
	for range 2 {
		profile, err := st.process.Load().Ask("/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return err
		}
		_, figure, _ := strings.Cut(profile, "\n# HeapAlloc = ")
		if _, err := fmt.Sscan(figure, &live); err != nil {
			return fmt.Errorf("a heap profile without HeapAlloc: %w", err)
		}
	}
	s, _, err := st.take()
	s[heap] = live
	st.samples = append(st.samples, s)
	return err
}

// thirds returns the median of a quantity in the second and in the last third of the pauses. A run
// has at least three pauses.
func thirds(samples []sample, quantity int) (second, last float64) {
	var parts [3][]float64
	for i, s := range samples {
		third := i * 3 / len(samples)
		parts[third] = append(parts[third], s[quantity])
	}
	return engine.Median(parts[1]), engine.Median(parts[2])
}

// compare judges the samples of an instance, and adds its rows to the table.
func (r *run) compare(st *instance, t *results.Table) {
	for i, q := range mayGrow {
		write := func(v float64) string {
			if q.mib {
				return results.MiB(int64(v))
			}
			return fmt.Sprintf("%.0f", v)
		}
		second, last := thirds(st.samples, i)
		most := 0.0
		for _, s := range st.busy {
			most = max(most, s[i])
		}
		if last > second*(1+q.share)+q.slack {
			r.broken.add(flat, "%s: %s went from %s to %s", st.name, q.name, write(second), write(last))
		}
		t.Add(nil, st.name, q.name, write(second), write(last), write(most))
	}
}
