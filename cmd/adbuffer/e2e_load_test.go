package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// worker is one of many clients at once. Its connection is opened again where
// adbuffer closed it. Unlike a client it reports errors, since it does not run
// on the test's goroutine.
type worker struct {
	ab *adbuffer
	id int
	c  *client
}

// exchange sends a request and reads its answer.
func (w *worker) exchange(method, target, body string, fields ...string) (*answer, error) {
	if w.c == nil {
		c, err := net.DialTimeout(w.ab.network, w.ab.traffic, patience)
		if err != nil {
			return nil, err
		}
		w.c = &client{t: w.ab.t, c: c, r: bufio.NewReader(c)}
	}
	w.c.c.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // a closed socket fails the read
	began := time.Now()
	_, err := io.WriteString(w.c.c, request(method, target, body, fields...))
	var a *answer
	if err == nil {
		a, err = w.c.tryRead(method)
	}
	if err != nil || a.header("Connection") == "close" {
		w.close()
	}
	if err != nil {
		return nil, fmt.Errorf("client %d: %s %s: %w", w.id, method, target, err)
	}
	a.took = time.Since(began)
	return a, nil
}

func (w *worker) close() {
	if w.c != nil {
		w.c.close()
		w.c = nil
	}
}

// concurrently runs do for n clients at once, each on a connection of its own,
// until all have returned. The first error of each fails the test.
func (ab *adbuffer) concurrently(n int, do func(w *worker) error) {
	ab.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w := &worker{ab: ab, id: i}
			defer w.close()
			if err := do(w); err != nil {
				ab.t.Error(err)
			}
		})
	}
	wg.Wait()
}

// tally counts answers, by who gave them and with which status: "ssp/a 200".
type tally struct {
	mu     sync.Mutex
	counts map[string]int
	took   map[string][]time.Duration
}

func (y *tally) add(a *answer) {
	y.addAs(fmt.Sprintf("%s %d", a.header("X-Adbuffer-Source"), a.status), a.took)
}

func (y *tally) addAs(what string, took time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts, y.took = map[string]int{}, map[string][]time.Duration{}
	}
	y.counts[what]++
	y.took[what] = append(y.took[what], took)
}

func (y *tally) of(what string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.counts[what]
}

func (y *tally) total() (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, c := range y.counts {
		n += c
	}
	return n
}

// log prints the counts, and the latencies behind them.
func (y *tally) log(t testing.TB, what string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range y.counts {
			if !yield(k) {
				return
			}
		}
	}) {
		d := slices.Sorted(slices.Values(y.took[k]))
		t.Logf("%-28s %-28s %6d  p50 %7v  p99 %7v", what, k, y.counts[k], d[len(d)/2].Round(10*time.Microsecond), d[len(d)*99/100].Round(10*time.Microsecond))
	}
}
