package route

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// fanout is a request that goes to several SSPs at once. The objects are reused: the caller, each
// started leg and endForClient hold a reference, and the last holder returns the fanout to the pool.
//
// The caller starts legs. Each leg runs on a goroutine of its own, sends itself to ended, and drops its
// reference. A leg ends at the request's deadline at the latest. A leg for which the caller need not wait
// ends as soon as the caller detaches. Starting a goroutine allocates nothing, and costs no more than
// waking a worker would (1 to 2 µs for four legs either way).
type fanout struct {
	process *Process
	request ssp.Request // the request that the legs read
	memory  requestCopy // holds request's bytes if legs may outlive the caller

	clientLeft func()      // the method endForClient, bound once
	unwatch    func() bool // ends the watch of request.Context; nil without a watch

	legs  []leg
	ended chan *leg // has capacity for all legs, so that no leg blocks
	refs  atomic.Int32

	askGone func() bool // the method gone, bound once to save an allocation

	mu         sync.Mutex  // guards the fields below
	clientGone func() bool // the request's Gone; nil after the caller has detached
}

// leg is one SSP's part of a fan-out. It belongs to the goroutine that runs it, until the caller has
// received it from ended.
type leg struct {
	fanout *fanout
	target *Target
	run    func()           // the method goroutine, bound once, so that starting it allocates nothing
	cancel *exchange.Cancel // ends the leg early; kept for the next request if it has not ended
	ctx    context.Context  // cancel, or nil if nothing ends the leg early

	ex      *exchange.Exchange // nil if SSP.Do was not called, or the leg panicked
	outcome exchange.Outcome
	err     *exchange.Error

	received bool  // the caller has received or skipped it
	entry    entry // in the envelope
}

var fanouts = sync.Pool{New: func() any {
	f := new(fanout)
	f.askGone = f.gone
	return f
}}

// newFanout returns a fan-out of r to the route's targets, held by the caller. abandon says that
// the caller may detach before all legs have ended. Then newFanout copies the request, once for all
// legs, and fails if the copy does not fit into the budget. Without the copy, the client's next
// request would reuse the memory that r refers to.
func (rt *Route) newFanout(r *ssp.Request, p *Process, abandon bool) (*fanout, *exchange.Error) {
	if abandon {
		if err := exchange.ReserveForRequest(nil, r.Budget, copySize(r), "a copy of the request"); err != nil {
			return nil, err
		}
	}
	f := fanouts.Get().(*fanout)
	f.process, f.request = p, *r
	f.request.Facts = nil // they belong to the caller
	if abandon {
		f.memory.take(&f.request)
	}
	f.resize(len(rt.Targets))
	for i := range f.legs {
		l, t := &f.legs[i], &rt.Targets[i]
		l.target = t
		// Other legs get no ctx, since a leg that can be cancelled costs its connection some work.
		if r.Context != nil || abandon && (t.Secondary || rt.Mode == ParallelFirst) {
			if l.cancel == nil {
				l.cancel = exchange.NewCancel()
			}
			l.ctx = l.cancel
		}
	}
	if r.Gone != nil {
		f.clientGone, f.request.Gone = r.Gone, f.askGone
	}
	f.refs.Store(1)
	if r.Context != nil {
		f.refs.Add(1) // the reference of endForClient: f is not reused while endForClient may run
		if f.clientLeft == nil {
			f.clientLeft = f.endForClient
		}
		f.unwatch = context.AfterFunc(r.Context, f.clientLeft)
	}
	return f, nil
}

// endForClient ends all legs, since the request's Context has ended.
func (f *fanout) endForClient() {
	for i := range f.legs {
		f.legs[i].cancel.End()
	}
	f.release()
}

// gone checks whether the client has closed its connection, for one leg at a time. After the caller
// has detached it returns false, since the connection belongs to the caller.
func (f *fanout) gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clientGone != nil && f.clientGone()
}

func (f *fanout) resize(n int) {
	if cap(f.legs) < n {
		f.legs = make([]leg, n)
		f.ended = make(chan *leg, n)
		for i := range f.legs {
			l := &f.legs[i]
			l.fanout, l.run = f, l.goroutine
		}
	}
	f.legs = f.legs[:n]
}

// startAll starts the legs of the eligible SSPs, and skips the other legs. It returns how many it started.
func (f *fanout) startAll(r *ssp.Request) (primaries, secondaries int) {
	for i := range f.legs {
		l := &f.legs[i]
		switch {
		case !l.target.Eligible(r, true):
			l.skip()
			continue
		case l.target.Secondary:
			secondaries++
		default:
			primaries++
		}
		f.start(l)
	}
	return primaries, secondaries
}

// start runs l on its own goroutine. A leg over the limit of requests in flight ends at once.
func (f *fanout) start(l *leg) {
	if !l.acquire() {
		f.ended <- l
		return
	}
	f.refs.Add(1)
	go l.run()
}

// detach abandons the running legs, and releases the caller's hold.
func (f *fanout) detach() {
	if f.unwatch != nil && f.unwatch() {
		f.refs.Add(-1) // endForClient does not run
	}
	for i := range f.legs {
		if l := &f.legs[i]; l.ctx != nil && !l.received {
			l.cancel.End()
		}
	}
	f.mu.Lock()
	f.clientGone = nil
	f.mu.Unlock()
	f.release()
}

// release drops a reference to f. The holder must not use f after that.
func (f *fanout) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	for len(f.ended) > 0 {
		<-f.ended // this leg ended after the caller had detached
	}
	for i := range f.legs {
		f.legs[i].reset()
	}
	f.memory.release(f.request.Budget)
	f.process, f.request = nil, ssp.Request{}
	f.unwatch = nil
	fanouts.Put(f)
}

func (l *leg) reset() {
	l.releaseExchange()
	if l.cancel != nil && (l.cancel.Err() != nil || l.err == errPanicked) {
		l.cancel = nil
	}
	l.target, l.ctx, l.outcome, l.err, l.received, l.entry = nil, nil, 0, nil, false, entry{}
}

func (l *leg) releaseExchange() {
	if l.ex != nil {
		l.ex.Release()
		l.ex = nil
	}
}

// acquire counts l as in flight, or ends it as Overloaded. send releases the count.
func (l *leg) acquire() bool {
	f := l.fanout.process.InFlight
	if f.Acquire() {
		return true
	}
	l.refuse(&exchange.Error{
		Outcome: exchange.Overloaded, Progress: exchange.NotSent,
		Detail: fmt.Sprintf("%d of %d requests and legs are in flight; see server.max_in_flight", f.Now(), f.Limit()),
	})
	return false
}

// skip ends l, whose SSP is not eligible. The caller does not receive it from ended.
func (l *leg) skip() {
	l.refuse(errFiltered)
	l.received = true
}

// refuse ends l before its request was sent.
func (l *leg) refuse(err *exchange.Error) {
	l.outcome, l.err = err.Outcome, err
	l.target.SSP.Refused(err.Outcome)
}

// goroutine is the leg's goroutine.
func (l *leg) goroutine() {
	f := l.fanout
	l.send()
	f.ended <- l
	f.release()
}

// send sends the request to the SSP.
func (l *leg) send() {
	f := l.fanout
	defer f.process.InFlight.Release()
	defer l.recovered()
	if l.ctx != nil && l.ctx.Err() != nil {
		err := exchange.ErrCancelled
		if c := f.request.Context; c != nil && c.Err() != nil {
			err = exchange.ErrClientGone
		}
		l.refuse(err)
		return
	}
	l.ex = exchange.AcquireExchange()
	l.ex.Context = l.ctx
	l.ex.Times.Queued = f.request.Received
	l.outcome, l.err = l.target.SSP.Do(&f.request, l.ex, l.target.Timeout)
}

// recovered ends a leg that panicked. The process continues, as after a panic on the caller's
// goroutine.
func (l *leg) recovered() {
	v := recover()
	if v == nil {
		return
	}
	// A connection may still use the exchange, so the garbage collector frees it.
	l.ex = nil
	l.outcome, l.err = exchange.Internal, errPanicked
	l.fanout.process.Panicked(v, debug.Stack())
}

var errPanicked = &exchange.Error{Outcome: exchange.Internal, Progress: exchange.MaybeProcessed, Detail: "adbuffer failed; see its log"}

// took returns the duration of the leg, since it was queued.
func (l *leg) took() time.Duration {
	if l.ex == nil {
		return 0
	}
	return max(0, l.ex.Times.Done.Sub(l.ex.Times.Queued))
}

// legLog returns the outcomes of the legs. Legs that the caller has not received are abandoned.
func (f *fanout) legLog() *legLog {
	log := newLegLog()
	for i := range f.legs {
		l := &f.legs[i]
		if l.received {
			log.add(l.target.SSP, l.outcome, l.took(), l.ex, l.err)
		} else {
			log.add(l.target.SSP, exchange.Cancelled, time.Since(f.request.Received), nil, nil)
		}
	}
	return log
}

// noneAsked returns the error of a leg whose SSP dropped the request, if no SSP was asked; otherwise nil.
func (f *fanout) noneAsked() (dropped *exchange.Error) {
	for i := range f.legs {
		l := &f.legs[i]
		if !l.received || !l.outcome.NotAsked() {
			return nil
		}
		if l.outcome == exchange.Shaped {
			dropped = l.err
		}
	}
	return dropped
}

// result returns the result of the request: the response and the outcome of l.
func (f *fanout) result(l *leg) Result {
	res := Result{Exchange: l.ex, SSP: l.target.SSP, Outcome: l.outcome, Err: l.err, legs: f.legLog()}
	l.ex = nil
	return res
}
