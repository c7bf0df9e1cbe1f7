package http1

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// Requests wait until the connection's first response. A request that is abandoned during this wait is
// reported as not sent, and the first response must not cause it to be sent.
func TestRequestAbandonedBeforeItsWriteIsNeverSent(t *testing.T) {
	onNewPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		first := get(t, "first")
		firstDone := start(conn, first)
		p.wantRequests("first")

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		late, alsoLate, cancelled, last := get(t, "late"), get(t, "also-late"), get(t, "cancelled"), get(t, "last")
		late.Deadline = time.Now().Add(shortBudget)
		alsoLate.Deadline = late.Deadline // one sweep withdraws both
		cancelled.Context = ctx
		var done []<-chan error
		for _, ex := range []*exchange.Exchange{late, alsoLate, cancelled, last} {
			done = append(done, start(conn, ex))
			synctest.Wait() // the requests enter in this order
		}
		for _, done := range done[:2] {
			err := wait(t, done)
			testsupport.True(t, err == exchange.ErrDeadlineNotSent && time.Now().Equal(late.Deadline), "a late request's error is %v, want %v at the deadline", err, exchange.ErrDeadlineNotSent)
		}
		cancel()
		wantEndsWith(t, done[2], exchange.ErrCancelled)
		owner.awaitFreed(t, 3) // their places are freed while the first response is outstanding

		behind := start(conn, get(t, "behind"))
		synctest.Wait()
		p.send(textResponse("1"))
		wantResponse(t, wait(t, firstDone), first, 200, "1")
		p.wantRequests("last", "behind")
		p.send(textResponse("2") + textResponse("3"))
		wantResponse(t, wait(t, done[3]), last, 200, "2")
		testsupport.NoError(t, wait(t, behind))
		owner.awaitFreed(t, 6)
		wantReason(t, conn, exchange.NotClosed)
	})
}

// While the reader withdraws an unsent request, another request arrives behind it. The response to
// that one is neither unsolicited nor another request's.
func TestRequestThatArrivesWhileAnotherIsWithdrawnGetsItsResponse(t *testing.T) {
	onNewPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		firstDone := start(conn, get(t, "first")) // the others wait for its response
		p.wantRequests("first")
		var behindDone <-chan error
		behind, late := get(t, "behind"), get(t, "late-and-longer-than-the-request-behind-it")
		late.Deadline = time.Now().Add(shortBudget)
		late.Context = &hooked{Context: context.Background(), hook: func() {
			if behindDone == nil {
				behindDone = start(conn, behind)
				for conn.outstanding.Load() < 3 {
					runtime.Gosched()
				}
			}
		}}
		wantEndsWith(t, start(conn, late), exchange.ErrDeadlineNotSent)
		p.send(textResponse("1"))
		testsupport.NoError(t, wait(t, firstDone))
		p.wantRequests("behind")
		p.send(textResponse("2"))
		wantResponse(t, wait(t, behindDone), behind, 200, "2")
		owner.awaitFreed(t, 3)
		wantReason(t, conn, exchange.NotClosed)
	})
}

// The first request of a connection is withdrawn if its caller writes it too late. Then the next
// request is the first, and is sent alone.
func TestFirstRequestIsWithdrawnIfItsCallerWritesTooLate(t *testing.T) {
	onNewPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		late := get(t, "late")
		late.Deadline = time.Now().Add(shortBudget)
		if duty, err := conn.enter(late); duty != writeAll || err != nil { // its caller is delayed between enter and flush
			t.Fatal(duty, err)
		}
		next, behind := get(t, "next-and-longer"), get(t, "behind")
		nextDone := start(conn, next)
		synctest.Wait()
		behindDone := start(conn, behind)
		wantEndsWith(t, late.Done(), exchange.ErrDeadlineNotSent)
		go conn.flush(time.Now().Add(patience)) // the caller continues
		p.wantRequests("next-and-longer")
		synctest.Wait()
		testsupport.MustEqual(t, conn.takenBytes.Load(), int64(conn.first), "%d bytes were written before the first response, of a first request of %d", conn.first)
		p.send(textResponse("1"))
		wantResponse(t, wait(t, nextDone), next, 200, "1")
		p.wantRequests("behind")
		p.send(textResponse("2"))
		wantResponse(t, wait(t, behindDone), behind, 200, "2")
		owner.awaitFreed(t, 3)
	})
}

// A caller may be delayed between enter and flush until its deadline has passed. Its write must not fail
// then, since a failed write ends the connection for all callers.
func TestCallerThatWritesTooLateHarmsNoOther(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.String(), func(t *testing.T) {
			conn, p, owner := dialPipelined(t, tr, testOptions(), nil)
			late := get(t, "late")
			late.Deadline = time.Now().Add(10 * time.Millisecond)
			if duty, err := conn.enter(late); duty != writeAll || err != nil {
				t.Fatal(duty, err)
			}
			wantEndsWith(t, late.Done(), exchange.ErrDeadlineNotSent)
			next := get(t, "next")
			done := start(conn, next)
			owner.awaitFreed(t, 1)
			testsupport.Eventually(t, "the next request is in the buffer", func() bool {
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.out != nil
			})
			conn.flush(late.Deadline) // the late caller continues
			p.wantRequests("next")
			p.send(textResponse("1"))
			wantResponse(t, wait(t, done), next, 200, "1")
			owner.awaitFreed(t, 2)
			wantReason(t, conn, exchange.NotClosed)
		})
	}
}

// lateWriter fails each Write, but returns the error late.
type lateWriter struct {
	net.Conn
	closed chan struct{}
}

func (w lateWriter) Write([]byte) (int, error) {
	<-w.closed
	time.Sleep(time.Millisecond)
	return 0, errors.New("broken pipe")
}

// A connection may end during a write that then fails without a byte. The reader waits for the write, to
// learn that the request was not sent.
func TestRequestWhoseWriteFailsLateWithZeroBytesWasNotSent(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s, p := pipe(t)
		owner := newRecorder()
		closed := make(chan struct{})
		conn := NewPipelined(lateWriter{s, closed}, s, owner, testOptions())
		done := start(conn, get(t, "first"))
		synctest.Wait()
		p.close()
		synctest.Wait()
		close(closed)
		wantError(t, wait(t, done), exchange.ConnLost, exchange.NotSent, false)
		owner.awaitFreed(t, 1)
	})
}
