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

// sample is the resources that a process holds.
type sample struct {
	at         time.Duration // since the start of the run
	rss        float64       // bytes
	heap       float64       // bytes; in a pause, after a garbage collection
	files      float64
	goroutines float64
	series     float64
}

// quantities are the figures of a sample. Each may grow by a share of itself plus a slack from the
// second third of a run to the last.
var quantities = []struct {
	name  string
	of    func(sample) float64
	share float64
	slack float64
	mib   bool
}{
	{"resident memory", func(s sample) float64 { return s.rss }, 0.15, 8 << 20, true},
	{"heap after a collection", func(s sample) float64 { return s.heap }, 0.10, 2 << 20, true},
	{"descriptors", func(s sample) float64 { return s.files }, 0, 4, false},
	{"goroutines", func(s sample) float64 { return s.goroutines }, 0.1, 15, false},
	{"series", func(s sample) float64 { return s.series }, 0, 0, false},
}

// zeroAtRest are the metrics that must be 0 while clients pause.
var zeroAtRest = []string{
	"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_buffered_bytes",
	"adbuffer_pool_places_in_use", "adbuffer_pool_pending_requests", "adbuffer_uploads",
}

// scrape reads a process's metrics, and adds up the series of each name.
func (st *instance) scrape() (sums map[string]float64, series int, err error) {
	sums = map[string]float64{}
	err = st.process().Series(func(name, _ string, v float64) {
		series++
		sums[name] += v
	})
	return sums, series, err
}

// take samples the process that serves the instance.
func (st *instance) take(since time.Time) (sample, map[string]float64, error) {
	sums, series, err := st.scrape()
	if err != nil {
		return sample{}, nil, err
	}
	u, err := load.Read(st.process().PID)
	if err != nil {
		return sample{}, nil, err
	}
	return sample{at: time.Since(since), rss: float64(u.RSS), files: float64(u.Files), series: float64(series),
		heap: sums["go_memstats_heap_alloc_bytes"], goroutines: sums["go_goroutines"]}, sums, nil
}

// settleTime is longer than pools keep idle connections, by more than the second after which the
// janitor looks again.
const settleTime = 3500 * time.Millisecond

// sampleAtRest samples an instance while clients pause. It waits until nothing is in use.
func (r *run) sampleAtRest(ctx context.Context, st *instance) error {
	var left []string
	for end := time.Now().Add(15 * time.Second); ; {
		_, sums, err := st.take(r.began)
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
	var heap float64
	for range 2 {
		profile, err := st.process().Ask("/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return err
		}
		_, figure, _ := strings.Cut(profile, "\n# HeapAlloc = ")
		if _, err := fmt.Sscan(figure, &heap); err != nil {
			return fmt.Errorf("a heap profile without HeapAlloc: %w", err)
		}
	}
	s, _, err := st.take(r.began)
	s.heap = heap
	st.samples = append(st.samples, s)
	return err
}

// thirds returns the median of a quantity in the second and in the last third of the pauses. A run
// has at least three pauses.
func thirds(samples []sample, of func(sample) float64) (second, last float64) {
	var parts [3][]float64
	for i, s := range samples {
		third := i * 3 / len(samples)
		parts[third] = append(parts[third], of(s))
	}
	return engine.Median(parts[1]), engine.Median(parts[2])
}

// compare judges the samples of an instance, and adds its rows to the table.
func (r *run) compare(st *instance, t *results.Table) {
	for _, q := range quantities {
		write := func(v float64) string {
			if q.mib {
				return results.MiB(int64(v))
			}
			return fmt.Sprintf("%.0f", v)
		}
		second, last := thirds(st.samples, q.of)
		most := 0.0
		for _, s := range st.busy {
			most = max(most, q.of(s))
		}
		if last > second*(1+q.share)+q.slack {
			r.broken.add(flat, "%s: %s went from %s to %s", st.name, q.name, write(second), write(last))
		}
		t.Add(nil, st.name, q.name, write(second), write(last), write(most))
	}
}
