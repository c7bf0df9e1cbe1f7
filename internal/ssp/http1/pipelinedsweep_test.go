package http1

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// onNewPipeline runs test in a bubble, on a new pipelined connection.
func onNewPipeline(t *testing.T, opts *Options, test func(t *testing.T, conn *Pipelined, p *peer, owner *recorder)) {
	testsupport.Bubble(t, func(t *testing.T) {
		s, p := pipe(t)
		owner := newRecorder()
		conn := NewPipelined(s, s, owner, opts)
		t.Cleanup(func() { conn.Close(exchange.ClosedDrain) })
		test(t, conn, p, owner)
	})
}

// inPipeline runs test in a bubble, on a pipelined connection that has carried its first response.
func inPipeline(t *testing.T, opts *Options, test func(t *testing.T, conn *Pipelined, p *peer, owner *recorder)) {
	onNewPipeline(t, opts, func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		prove(t, conn, p, owner)
		test(t, conn, p, owner)
	})
}

// A large write may block, so a separate goroutine does it and the caller returns in time. While
// other callers wait, the peer may delay its response.
func TestLargeUnwritableRequestDelaysNoCaller(t *testing.T) {
	inPipeline(t, lingering(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		begin := time.Now()
		large := newExchange(t)
		large.Request.Method, large.Request.Body = exchange.POST, make([]byte, maxDirect+1)
		large.Deadline = begin.Add(shortBudget)
		largeDone := start(conn, large)
		synctest.Wait()
		patient := start(conn, get(t, "patient"))
		wantEndsWith(t, largeDone, exchange.ErrDeadline)
		testsupport.MustEqual(t, time.Since(begin), shortBudget, "the caller was freed after %v")
		got := p.request()
		testsupport.MustTrue(t, strings.HasPrefix(got, "POST "), "request %.100q", got)
		p.wantRequests("patient")
		p.send(textResponse("abandoned") + textResponse("patient"))
		testsupport.NoError(t, wait(t, patient))
		owner.awaitFreed(t, 3)
		wantReason(t, conn, exchange.NotClosed)
	})
}

func TestUnreadPipelineIsClosedWhenNoCallerWaits(t *testing.T) {
	inPipeline(t, lingering(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		begin := time.Now()
		large := newExchange(t)
		large.Request.Method, large.Request.Body = exchange.POST, make([]byte, maxDirect+1)
		large.Deadline = begin.Add(shortBudget)
		done := start(conn, large)
		wantEndsWith(t, done, exchange.ErrDeadline)
		owner.awaitFreed(t, 2)
		testsupport.MustEqual(t, time.Since(begin), shortBudget+shortLinger, "the connection was closed after %v")
		wantReason(t, conn, exchange.ClosedTimeout)
	})
}

// The bytes that wait to be written on one connection are bounded.
func TestRequestsThatCannotBeWrittenAreRefused(t *testing.T) {
	inPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		post := func() *exchange.Exchange {
			ex := newExchange(t)
			ex.Request.Method, ex.Request.Body = exchange.POST, make([]byte, maxUnwritten-1000)
			return ex
		}
		written := start(conn, post()) // this request is being written
		synctest.Wait()
		waiting := start(conn, post())
		synctest.Wait()
		wantError(t, conn.Do(post()), exchange.Overloaded, exchange.NotSent, false)
		for _, done := range []<-chan error{written, waiting} {
			p.request()
			p.send(textResponse(""))
			testsupport.NoError(t, wait(t, done))
		}
		owner.awaitFreed(t, 4)
	})
}

// Each caller returns at its own deadline, in any order of the deadlines.
func TestEachPipelinedCallerReturnsAtItsOwnDeadline(t *testing.T) {
	inPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		begin := time.Now()
		budgets := []time.Duration{400, 100, 300, 200, 500}
		var done [5]<-chan error
		for i := range budgets {
			budgets[i] *= time.Millisecond
			ex := get(t, "x")
			ex.Deadline = begin.Add(budgets[i])
			done[i] = start(conn, ex)
			p.request()
		}
		for _, i := range []int{1, 3, 2, 0} {
			wantEndsWith(t, done[i], exchange.ErrDeadline)
			testsupport.MustEqual(t, time.Since(begin), budgets[i], "a caller was freed after %v")
		}
		p.send(textResponse("0") + textResponse("1") + textResponse("2") + textResponse("3"))
		owner.awaitFreed(t, 5)
		p.send(textResponse("4"))
		testsupport.NoError(t, wait(t, done[4]))
		owner.awaitFreed(t, 6)
		wantReason(t, conn, exchange.NotClosed)
	})
}

// The last response of a connection is not read to its end if its request was abandoned.
func TestLastResponseWithoutCallerClosesThePipelineAtOnce(t *testing.T) {
	inPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		begin := time.Now()
		ex := get(t, "late")
		ex.Deadline = begin.Add(shortBudget)
		done := start(conn, ex)
		p.wantRequests("late")
		wantEndsWith(t, done, exchange.ErrDeadline)
		p.send("HTTP/1.1 200 OK\r\n\r\nla")
		p.wantClosed()
		testsupport.MustEqual(t, time.Since(begin), shortBudget, "the connection was closed after %v")
		owner.awaitFreed(t, 2)
		wantReason(t, conn, exchange.ClosedByPeer)
	})
}

// hooked is a context that calls hook at each call of Err.
type hooked struct {
	context.Context
	hook func()
}

func (h *hooked) Err() error {
	h.hook()
	return nil
}

// A request that arrives during the reader's sweep is not forgotten.
func TestDeadlineOfARequestThatArrivesDuringASweepCounts(t *testing.T) {
	inPipeline(t, testOptions(), func(t *testing.T, conn *Pipelined, p *peer, owner *recorder) {
		begin := time.Now()
		var late <-chan error
		first := get(t, "first")
		first.Deadline = begin.Add(shortBudget)
		first.Context = &hooked{Context: context.Background(), hook: func() {
			if late == nil {
				ex := get(t, "late")
				ex.Deadline = begin.Add(2 * shortBudget)
				late = start(conn, ex)
				for conn.outstanding.Load() < 2 {
					runtime.Gosched()
				}
			}
		}}
		done := start(conn, first)
		p.wantRequests("first")
		wantEndsWith(t, done, exchange.ErrDeadline)
		p.wantRequests("late")
		err := wait(t, late)
		testsupport.MustTrue(t, err == exchange.ErrDeadline && time.Since(begin) == 2*shortBudget, "error %v after %v, want %v after %v", err, time.Since(begin), exchange.ErrDeadline, 2*shortBudget)
	})
}
