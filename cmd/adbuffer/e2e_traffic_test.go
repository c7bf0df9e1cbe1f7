package main

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// traffic is load that goes on beside a test.
type traffic struct {
	stopped atomic.Bool
	done    chan struct{}
	sent    atomic.Int64
}

// startTraffic sends requests from n clients, each with a pause after every
// answer, to the targets in turns, until stop. A target that begins with "POST "
// is sent a body.
func (ab *adbuffer) startTraffic(n int, pause time.Duration, targets ...string) *traffic {
	y := &traffic{done: make(chan struct{})}
	go func() {
		defer close(y.done)
		ab.concurrently(n, func(w *worker) error {
			for i := w.id; !y.stopped.Load(); i++ {
				method, body, target := "GET", "", targets[i%len(targets)]+strconv.Itoa(i)
				if rest, ok := strings.CutPrefix(target, "POST "); ok {
					method, body, target = "POST", strings.Repeat(" ", 2048), rest
				}
				if _, err := w.exchange(method, target, body); err != nil {
					return err
				}
				y.sent.Add(1)
				time.Sleep(pause)
			}
			return nil
		})
	}()
	ab.t.Cleanup(y.stop)
	return y
}

// stop returns when the last answer is there.
func (y *traffic) stop() {
	y.stopped.Store(true)
	<-y.done
}

// awaitSent waits for n more answers.
func (y *traffic) awaitSent(t testing.TB, n int64) {
	t.Helper()
	from := y.sent.Load()
	eventually(t, "traffic goes on", func() bool { return y.sent.Load() >= from+n })
}
