package e2e

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// Traffic is load that runs beside a test.
type Traffic struct {
	stopped atomic.Bool
	running sync.WaitGroup
	sent    atomic.Int64
}

// StartTraffic sends requests from n clients, each with a pause after every
// response, to the targets in turn, until Stop. A target that begins with "POST " gets a
// body.
func (ab *Process) StartTraffic(n int, pause time.Duration, targets ...string) *Traffic {
	y := new(Traffic)
	y.running.Go(func() {
		ab.Concurrently(n, func(w *Worker) error {
			for i := w.Id; !y.stopped.Load(); i++ {
				method, body, target := "GET", "", targets[i%len(targets)]+strconv.Itoa(i)
				if rest, ok := strings.CutPrefix(target, "POST "); ok {
					method, body, target = "POST", strings.Repeat(" ", 2048), rest
				}
				if _, err := w.Exchange(method, target, body); err != nil {
					return err
				}
				y.sent.Add(1)
				time.Sleep(pause)
			}
			return nil
		})
	})
	ab.T.Cleanup(y.Stop)
	return y
}

// Stop returns after the last response.
func (y *Traffic) Stop() {
	y.stopped.Store(true)
	y.running.Wait()
}

// AwaitSent waits for n more responses.
func (y *Traffic) AwaitSent(t testing.TB, n int64) {
	t.Helper()
	from := y.sent.Load()
	testsupport.Eventually(t, "traffic continues", func() bool { return y.sent.Load() >= from+n })
}
