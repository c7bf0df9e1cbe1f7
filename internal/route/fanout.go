package route

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// fanout is one request that goes to several SSPs at once; reused. Its caller
// holds it, and each leg that was started; whoever lets go last returns it to
// the pool.
//
// A leg is started by the caller, runs on a goroutine of its own, reports to
// ended, and lets go. It ends by the request's deadline, or, where the caller
// need not wait for it, at once when the caller leaves. Starting a goroutine
// allocates nothing, and costs no more than waking a worker that was kept (four
// legs and back: 1 to 2 µs either way).
type fanout struct {
	process *Process
	request ssp.Request // what the legs read
	memory  requestCopy // behind request, where legs may outlive the caller

	cancel context.CancelFunc // ends legs early; nil where the caller waits for all of them

	legs  []leg
	ended chan *leg // has room for all legs, so that none ever blocks on it
	refs  atomic.Int32

	askGone func() bool // gone, made once, so that it costs no allocation

	mu         sync.Mutex  // guards the fields below
	clientGone func() bool // the request's Gone; nil once the caller has left
}

// leg is one SSP's part in a fan-out. It belongs to the goroutine that runs it,
// and, once it has been received from ended, to the caller.
type leg struct {
	fanout *fanout
	target *Target
	run    func()          // main, made once, so that starting it allocates nothing
	ctx    context.Context // ends it early; nil where the caller waits for it

	ex      *upstream.Exchange // nil where the SSP was not asked
	outcome upstream.Outcome
	err     *upstream.Error

	back  bool  // the caller has received it
	entry entry // of the envelope
}

var fanouts = sync.Pool{New: func() any {
	f := new(fanout)
	f.askGone = f.gone
	return f
}}

// newFanout returns a fan-out of r to the route's targets, held by the caller.
// abandon says that the caller may leave before all legs have ended. It then
// takes a copy of the request, once for all legs, for which there may be no
// room; the memory behind r belongs to the caller's client, who may send the
// next request.
func (rt *Route) newFanout(r *ssp.Request, p *Process, abandon bool) (*fanout, *upstream.Error) {
	f := fanouts.Get().(*fanout)
	f.process, f.request = p, *r
	var ctx context.Context
	if abandon {
		if err := f.memory.take(&f.request); err != nil {
			f.request = ssp.Request{}
			fanouts.Put(f)
			return nil, err
		}
		ctx, f.cancel = context.WithCancel(context.Background())
	}
	f.resize(len(rt.Targets))
	for i := range f.legs {
		l, t := &f.legs[i], &rt.Targets[i]
		l.target = t
		// A leg that can be cancelled costs its connection more.
		if abandon && (t.Secondary || rt.Mode == ParallelFirst) {
			l.ctx = ctx
		}
	}
	if r.Gone != nil {
		f.clientGone, f.request.Gone = r.Gone, f.askGone
	}
	f.refs.Store(1)
	return f, nil
}

// gone asks whether the client has left: for one leg at a time, and for none
// after the caller has left, since the client's connection is its.
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
			l.fanout, l.run = f, l.main
		}
	}
	f.legs = f.legs[:n]
}

// start runs l on its own goroutine. One that may not enter has ended at once.
func (f *fanout) start(l *leg) {
	if !l.enter() {
		f.ended <- l
		return
	}
	f.refs.Add(1)
	go l.run()
}

// leave is the caller's last word: it abandons the legs that still run.
func (f *fanout) leave() {
	if f.cancel != nil {
		f.cancel()
	}
	f.mu.Lock()
	f.clientGone = nil
	f.mu.Unlock()
	f.release()
}

// release lets go of f, of which nothing may be used any more.
func (f *fanout) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	for len(f.ended) > 0 {
		<-f.ended // ended after the caller had left
	}
	for i := range f.legs {
		f.legs[i].reset()
	}
	f.memory.release(f.request.Budget)
	f.process, f.request = nil, ssp.Request{}
	f.cancel = nil
	fanouts.Put(f)
}

func (l *leg) reset() {
	l.releaseExchange()
	l.target, l.ctx, l.outcome, l.err, l.back, l.entry = nil, nil, 0, nil, false, entry{}
}

func (l *leg) releaseExchange() {
	if l.ex != nil {
		l.ex.Release()
		l.ex = nil
	}
}

// enter counts l as in flight, or ends it as Overloaded. do takes it back.
func (l *leg) enter() bool {
	f := l.fanout.process.InFlight
	if f.Acquire() {
		return true
	}
	l.refuse(&upstream.Error{
		Outcome: upstream.Overloaded, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("%d of %d requests and legs are in flight; see server.max_in_flight", f.Now(), f.Limit()),
	})
	return false
}

// refuse ends l before its SSP was asked.
func (l *leg) refuse(err *upstream.Error) {
	l.outcome, l.err = err.Outcome, err
	l.target.SSP.Refused(err.Outcome)
}

// main is the leg's goroutine.
func (l *leg) main() {
	f := l.fanout
	l.do()
	f.ended <- l
	f.release()
}

// do asks the SSP.
func (l *leg) do() {
	f := l.fanout
	defer f.process.InFlight.Release()
	defer l.recovered()
	if l.ctx != nil && l.ctx.Err() != nil {
		l.refuse(upstream.ErrCancelled)
		return
	}
	l.ex = upstream.AcquireExchange()
	l.ex.Context = l.ctx
	l.ex.Times.Queued = f.request.Received
	l.outcome, l.err = l.target.SSP.Do(&f.request, l.ex, l.target.Timeout)
}

// recovered ends a leg that panicked. The process goes on: so do requests that
// panic on the caller's goroutine.
func (l *leg) recovered() {
	v := recover()
	if v == nil {
		return
	}
	// A connection may still have the exchange: the garbage collector gets it.
	l.ex = nil
	l.outcome, l.err = upstream.Internal, errPanicked
	l.fanout.process.Panicked(v, debug.Stack())
}

var errPanicked = &upstream.Error{Outcome: upstream.Internal, Progress: upstream.MaybeProcessed, Detail: "adbuffer failed; see its log"}

// took is how long the SSP took, from when it was asked.
func (l *leg) took() time.Duration {
	if l.ex == nil {
		return 0
	}
	return max(0, l.ex.Times.Done.Sub(l.ex.Times.Queued))
}

// log notes how the legs fared: those that the caller has not received are
// abandoned.
func (f *fanout) log() *legLog {
	log := newLegLog()
	for i := range f.legs {
		l := &f.legs[i]
		if l.back {
			log.add(l.target.SSP, l.outcome, l.took(), l.ex)
		} else {
			log.add(l.target.SSP, upstream.Cancelled, time.Since(f.request.Received), nil)
		}
	}
	return log
}

// result makes l's end the request's.
func (f *fanout) result(l *leg) Result {
	res := Result{Exchange: l.ex, SSP: l.target.SSP, Outcome: l.outcome, Err: l.err, legs: f.log()}
	l.ex = nil
	return res
}
