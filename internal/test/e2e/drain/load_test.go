package drain

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
)

const (
	// drainDelay is server.drain.delay of the processes under load. Meanwhile every client with
	// requests receives "Connection: close".
	drainDelay = 2 * time.Second
	// firstRequestWait is how long the end of a drain waits for the first request of a client.
	firstRequestWait = time.Second
	// mostPauses is how often one request may be repeated because the machine paused.
	mostPauses = 5
)

var drainDelayed = "ADBUFFER_SERVER_DRAIN_DELAY=" + drainDelay.String()

// drainedClient is a client of processes that drain.
type drainedClient struct {
	*e2e.Worker
	sent time.Time // when the last request was sent
}

// get sends a GET. fresh reports whether it used a new connection. If the machine pauses, a client
// may send nothing for as long as a drain waits for it. The drain then closes its idle connection,
// and get repeats the request on a new one. A process that cuts an accepted request ends with exit
// status 1, so no test mistakes a lost request for a pause.
func (c *drainedClient) get() (a *e2e.Response, fresh bool, err error) {
	for range mostPauses {
		fresh = c.Client == nil
		now := time.Now()
		since, wait := now, firstRequestWait
		if !fresh {
			since, wait = c.sent, drainDelay
		}
		c.sent = now
		a, err = c.Exchange("GET", "/fillbuffer", "")
		closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !closed || time.Since(since) < wait {
			break
		}
	}
	return a, fresh, err
}

// load sends requests until stopped. Half of its clients keep their connections as long as
// possible. The other half opens one for each request.
type load struct {
	stopped   atomic.Bool
	responses e2e.Tally
	done      chan struct{}
}

func startLoad(ab *e2e.Process) *load {
	l := &load{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		ab.Concurrently(16, func(w *e2e.Worker) error {
			for c := (drainedClient{Worker: w}); !l.stopped.Load(); {
				a, _, err := c.get()
				if err != nil {
					return err
				}
				l.responses.Add(a)
				if w.Id%2 == 0 {
					w.Close()
				}
			}
			return nil
		})
	}()
	return l
}

// wantNothingLost ends the load. Every request must have the SSP's response.
func (l *load) wantNothingLost(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	<-l.done
	t.Logf("responses: %v", &l.responses)
	if n := l.responses.Total(); l.responses.Of("ssp/openx 200") != n || n < 100 {
		t.Errorf("%d requests, and the SSP responded to %d", n, l.responses.Of("ssp/openx 200"))
	}
}
