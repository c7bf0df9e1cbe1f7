package e2e

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"
)

// Worker is one of many clients at once. It opens its connection again after adbuffer closed it.
// Unlike a Client it returns errors, since it does not run on the test's goroutine.
type Worker struct {
	Process *Process
	Id      int
	Client  *Client
}

// Exchange sends a request and reads its response.
func (w *Worker) Exchange(method, target, body string, fields ...string) (*Response, error) {
	if w.Client == nil {
		c, err := w.Process.tryDial()
		if err != nil {
			return nil, err
		}
		w.Client = c
	}
	w.Client.patient()
	began := time.Now()
	_, err := io.WriteString(w.Client.Conn, Request(method, target, body, fields...))
	var a *Response
	if err == nil {
		a, err = w.Client.TryRead(method)
	}
	if err != nil || a.Header("Connection") == "close" {
		w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("client %d: %s %s: %w", w.Id, method, target, err)
	}
	a.Took = time.Since(began)
	return a, nil
}

func (w *Worker) Close() {
	if w.Client != nil {
		w.Client.Close()
		w.Client = nil
	}
}

// Concurrently runs do for n clients at once, each on its own connection, until all have returned.
// The first error of each client fails the test.
func (ab *Process) Concurrently(n int, do func(w *Worker) error) {
	ab.T.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w := &Worker{Process: ab, Id: i}
			defer w.Close()
			if err := do(w); err != nil {
				ab.T.Error(err)
			}
		})
	}
	wg.Wait()
}

// Tally counts responses by source and status: "ssp/a 200".
type Tally struct {
	mu   sync.Mutex
	took map[string][]time.Duration
}

func (y *Tally) Add(a *Response) {
	y.AddAs(fmt.Sprintf("%s %d", a.Header("X-Adbuffer-Source"), a.Status), a.Took)
}

func (y *Tally) AddAs(what string, took time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.took == nil {
		y.took = map[string][]time.Duration{}
	}
	y.took[what] = append(y.took[what], took)
}

func (y *Tally) Of(what string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.took[what])
}

func (y *Tally) Total() (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, took := range y.took {
		n += len(took)
	}
	return n
}

// Log prints the counts and the latencies.
func (y *Tally) Log(t testing.TB, what string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(y.took)) {
		d := slices.Sorted(slices.Values(y.took[k]))
		t.Logf("%-28s %-28s %6d  p50 %7v  p99 %7v", what, k, len(d), d[len(d)/2].Round(10*time.Microsecond), d[len(d)*99/100].Round(10*time.Microsecond))
	}
}
