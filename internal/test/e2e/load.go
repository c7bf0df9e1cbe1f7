package e2e

import (
	"fmt"
	"io"
	"sync"
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

// Tally counts what happens to many clients at once.
type Tally struct {
	mu sync.Mutex
	n  map[string]int
}

// Add counts a response by its source and status: "ssp/a 200".
func (y *Tally) Add(a *Response) {
	y.AddAs(fmt.Sprintf("%s %d", a.Header("X-Adbuffer-Source"), a.Status))
}

func (y *Tally) AddAs(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.n == nil {
		y.n = map[string]int{}
	}
	y.n[what]++
}

func (y *Tally) Of(what string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.n[what]
}

func (y *Tally) Total() (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, of := range y.n {
		n += of
	}
	return n
}

func (y *Tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return fmt.Sprint(y.n)
}
