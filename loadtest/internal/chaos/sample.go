package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// sample is the resources that a process holds, by quantity. Memory is in bytes.
type sample [quantities]float64

const (
	rss  = iota
	heap // while clients pause, after a garbage collection
	files
	goroutines
	series
	quantities
)

// mayGrow says how much each quantity may grow from the second third of a run to the last third: by a share
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
	"adbuffer_pool_places_in_use", "adbuffer_pool_pending_requests",
}

// take samples the process that serves the instance. sums are the sums of the series of each metric.
func (st *instance) take() (s sample, sums map[string]float64, err error) {
	sums = map[string]float64{}
	a := st.process.Load()
	err = a.Series(func(name, labels string, v float64) {
		if !comesAndGoes(name, labels) {
			s[series]++
		}
		sums[name] += v
		if blames(name, labels) {
			sums[blame+labels] += v
		}
	})
	if err != nil {
		return s, nil, fmt.Errorf("%s: %w: %s", st.name, err, a.LastLog())
	}
	u, err := load.Read(a.PID)
	s[rss], s[files] = float64(u.RSS), float64(u.Files)
	s[heap], s[goroutines] = sums["go_memstats_heap_alloc_bytes"], sums["go_goroutines"]
	return s, sums, err
}

// comesAndGoes reports whether a series depends on whether an SSP has keys of qps.shape, which reloads change, or on how
// much the shaper of this process has learned.
func comesAndGoes(name, labels string) bool {
	return strings.HasPrefix(name, "adbuffer_shape_") || strings.Contains(labels, `="shaped"`)
}

// blame begins the keys in sums of the series that blame a healthy SSP. The labels of the series follow.
const blame = "blame "

// logOfHealthy returns the last lines of the process's log that name a healthy SSP.
func (st *instance) logOfHealthy() string {
	const maxLines = 3
	a := st.process.Load()
	if a == nil {
		return "nothing"
	}
	lines := slices.DeleteFunc(strings.Split(string(a.Log()), "\n"), func(line string) bool { return !strings.Contains(line, `"calm`) })
	return strings.Join(lines[max(0, len(lines)-maxLines):], "; ")
}

func blames(name, labels string) bool {
	return name == "adbuffer_ssp_requests_total" && strings.Contains(labels, `ssp="calm`) &&
		slices.ContainsFunc([]string{"connect_failed", "tls_failed", "breaker_open", "ssp_backoff"}, func(outcome string) bool { return strings.Contains(labels, `"`+outcome+`"`) })
}

const (
	maxConnections     = 1100
	guardedConnections = 80
	maxBufferedBytes   = 64 << 20
	// memoryLimit is the Go memory limit of a process, in MiB. adbuffer sets it itself in a container of
	// maxMemory, and max_buffered_bytes is less than a quarter of it.
	memoryLimit = 360
)

// The limits of what a process may hold under any attack. A connection may have more goroutines than its limit
// for less than a second.
const (
	maxMemory            = 400 << 20
	maxLiveHeap          = 160 << 20 // of the heap, without garbage
	maxGoroutinesPerConn = 10        // for each connection
)

func (r *run) observe(st *instance, s sample, sums map[string]float64) {
	for key, n := range sums {
		labels, isBlame := strings.CutPrefix(key, blame)
		if more := n - st.last[key]; isBlame && more > 0 {
			r.broken.add(blamed, "%s: %v requests to a healthy SSP: {%s. Of its log: %s", st.name, more, labels, st.logOfHealthy())
		}
	}
	st.last = sums
	conns := sums["adbuffer_client_connections"]
	surplus := s[goroutines] > 1000+maxGoroutinesPerConn*conns
	if s[rss] > maxMemory || surplus && st.surplus {
		r.broken.add(modest, "%s: %.0f MiB and %.0f goroutines, with %.0f connections", st.name, s[rss]/(1<<20), s[goroutines], conns)
	}
	st.surplus = surplus
	st.busy = append(st.busy, s)
}

// settleTime is the idle timeout of the pools, plus more than the second after which their janitors look
// again.
const settleTime = 3500 * time.Millisecond

// pageTime is longer than adbuffer keeps the page of a scrape, which would be counted in the heap.
const pageTime = 1200 * time.Millisecond

// sampleAtRest samples an instance while clients pause. It waits until nothing is in use.
func (r *run) sampleAtRest(st *instance) {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		r.Check(r.Ctx.Err())
		_, sums, err := st.take()
		r.Check(err)
		pools := rig.Must(st.process.Load().Ask("/pools"))(r.Rig)
		held := rig.Must(heldAtRest(sums, pools))(r.Rig)
		if len(held) == 0 {
			break
		}
		if time.Now().After(end) {
			r.broken.add(returned, "%s, %v after the last request: %s", st.name, 15*time.Second, strings.Join(held, ", "))
			break
		}
	}
	rig.Sleep(r.Ctx, pageTime)
	live := rig.Must(st.live())(r.Rig)
	s, _, err := st.take()
	r.Check(err)
	s[heap] = live
	st.samples = append(st.samples, s)
}

// heldAtRest lists what a process holds that must be 0 while clients pause. sums are the sums of its metrics, and pools
// is its response to /pools.
func heldAtRest(sums map[string]float64, pools string) (held []string, err error) {
	for _, name := range zeroAtRest {
		if sums[name] != 0 {
			held = append(held, fmt.Sprintf("%s %v", name, sums[name]))
		}
	}
	var view struct{ Totals struct{ Uploads *int } }
	if err := json.Unmarshal([]byte(pools), &view); err != nil {
		return nil, fmt.Errorf("/pools: %w", err)
	}
	if view.Totals.Uploads == nil {
		return nil, errors.New("/pools has no totals.uploads")
	}
	if n := *view.Totals.Uploads; n != 0 {
		held = append(held, fmt.Sprintf("uploads %d", n))
	}
	return held, nil
}

// live returns the size of the heap after a garbage collection.
func (st *instance) live() (live float64, err error) {
	// A heap profile with gc=1 and debug=1 has the size of the heap just after a collection. The second
	// collection also frees the contents of sync.Pools.
	for range 2 {
		profile, err := st.process.Load().Ask("/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		_, figure, _ := strings.Cut(profile, "\n# HeapAlloc = ")
		if _, err := fmt.Sscan(figure, &live); err != nil {
			return 0, fmt.Errorf("a heap profile without HeapAlloc: %w", err)
		}
	}
	return live, nil
}

// witnessMemory judges the heap of a process under an attack.
func (r *run) witnessMemory(st *instance) {
	if live, err := st.live(); err == nil && live > maxLiveHeap { // an error: a new process has taken over
		r.broken.add(modest, "%s: a heap of %.0f MiB without garbage", st.name, live/(1<<20))
	}
}

// thirds returns the median of a quantity in the second and in the last third of the pauses. A run
// has at least three pauses.
func thirds(samples []sample, quantity int) (second, last float64) {
	var parts [3][]float64
	for i, s := range samples {
		third := i * 3 / len(samples)
		parts[third] = append(parts[third], s[quantity])
	}
	return rig.Median(parts[1]), rig.Median(parts[2])
}

// goroutineDescriptor is what Go 1.26 keeps of a goroutine that has ended, in bytes. It uses it for the next goroutine, and
// never frees it: the heap of a process shows how many goroutines it once had at a time.
const goroutineDescriptor = 480

func (r *run) compare(st *instance, t *results.Table) {
	for i, q := range mayGrow {
		write := func(v float64) string {
			if q.mib {
				return results.MiB(int64(v))
			}
			return fmt.Sprintf("%.0f", v)
		}
		second, last := thirds(st.samples, i)
		highest := 0.0
		for _, s := range st.busy {
			highest = max(highest, s[i])
		}
		slack := q.slack
		if n, _ := r.attacksSeen.of(manyStreams); i == heap && n > 0 {
			slack += manyStreamsConns * manyStreamsEach * goroutineDescriptor
		}
		if last > second*(1+q.share)+slack {
			r.broken.add(flat, "%s: %s went from %s to %s", st.name, q.name, write(second), write(last))
		}
		t.Add(nil, st.name, q.name, write(second), write(last), write(highest))
	}
}
