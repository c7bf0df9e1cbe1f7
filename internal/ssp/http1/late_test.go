package http1

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// gated is a connection whose reads wait until the gate is open. It simulates a reading goroutine
// that is scheduled late.
type gated struct {
	net.Conn
	gate chan struct{}
}

func (g gated) Read(b []byte) (int, error) {
	<-g.gate
	return g.Conn.Read(b)
}

// The goroutine that reads may run only after the deadline, though the response arrived before it.
func TestResponseThatArrivedBeforeTheDeadlineCountsEvenIfReadLate(t *testing.T) {
	testsupport.Long(t)
	const budget = 4 * time.Second // a slow machine needs some of it until the response is sent
	for _, k := range kinds {
		for size, body := range map[string]string{"small": "x", "large": strings.Repeat("x", 100<<10)} {
			for _, tr := range transports {
				t.Run(fmt.Sprint(k, "/", size, "/", tr), func(t *testing.T) {
					t.Parallel()
					c, sock, p := connect(t, tr)
					owner, gate := newRecorder(), make(chan struct{})
					conn := k.open(gated{c, gate}, sock, owner, testOptions())
					t.Cleanup(func() { conn.Close(exchange.ClosedDrain) })
					ex := newExchange(t)
					ex.Deadline = time.Now().Add(budget)
					done := start(conn, ex)
					p.request()
					p.send(textResponse(body))
					time.Sleep(time.Until(ex.Deadline) + time.Millisecond)
					close(gate)
					wantResponse(t, wait(t, done), ex, 200, body)
					owner.awaitFreed(t, 1)
					wantReason(t, conn, exchange.NotClosed)
				})
			}
		}
	}
}

// The reader looks late only for the response to a request that was sent, and a bounded number of
// times: an SSP that sends without end must not delay other callers' deadlines.
func TestLateReadsAreBounded(t *testing.T) {
	r := &reader{Pipelined: new(Pipelined), queue: []entry{{start: 0, end: 10}}, n: 1}
	testsupport.True(t, !r.mayReadLate(), "a late read although the request was not sent")
	r.takenBytes.Store(1)
	n := 0
	for n <= maxLateReads && r.mayReadLate() {
		n++
	}
	testsupport.Equal(t, n, maxLateReads, "%d late reads")
}
