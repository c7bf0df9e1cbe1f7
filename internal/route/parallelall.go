package route

import (
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// parallelAll asks all SSPs at once and answers with what each of them said,
// once the primaries are back; secondaries that are not are abandoned.
//
// The caller runs a primary's leg itself, which saves a goroutine. That delays
// nothing: no answer leaves before that leg has ended.
func (rt *Route) parallelAll(r *ssp.Request, p *Process) Result {
	f, err := rt.newFanout(r, p, !rt.waits)
	if err != nil {
		return Result{Outcome: err.Outcome, Err: err}
	}
	defer f.leave()
	f.request.Plain = true
	missing := 0
	for i := range f.legs {
		if i != rt.own {
			f.start(&f.legs[i])
		}
		if !rt.Targets[i].Secondary {
			missing++
		}
	}
	gone := f.runOwn(&f.legs[rt.own])
	missing--
	for missing > 0 || len(f.ended) > 0 {
		l := <-f.ended
		l.back = true
		gone = gone || l.outcome == upstream.ClientGone
		if !l.target.Secondary {
			missing--
		}
	}
	if gone {
		return Result{Outcome: upstream.ClientGone, Err: errClientGone, legs: f.log()}
	}
	return f.envelope(r.Budget)
}

// runOwn runs l on the caller's goroutine, and reports whether the client has
// left.
func (f *fanout) runOwn(l *leg) (gone bool) {
	if l.enter() {
		l.do()
	}
	l.back = true
	return l.outcome == upstream.ClientGone
}

// prepareParallelAll chooses the leg that the caller runs: the last that it
// must wait for anyway, so that those before it are under way.
func (rt *Route) prepareParallelAll() {
	rt.own, rt.waits = -1, true
	for i := range rt.Targets {
		if rt.Targets[i].Secondary {
			rt.waits = false
		} else {
			rt.own = i
		}
	}
	if rt.own < 0 {
		panic("BUG: all SSPs of route " + rt.Name + " are secondary")
	}
}

// envelope makes the answer of parallel-all: what each leg said, in the route's
// order. While it is written, the legs' bodies and their copy in the envelope
// are both held, and both are in the budget.
func (f *fanout) envelope(b *upstream.Budget) Result {
	log := f.log()
	n := envelopeOverhead
	for i := range f.legs {
		l := &f.legs[i]
		l.entry = l.envelopeEntry()
		n += l.entry.bound()
	}
	ex := upstream.AcquireExchange()
	ex.Budget = b
	if ex.Reserve(n) != nil {
		return Result{Exchange: ex, Outcome: upstream.Overloaded, Err: noRoom("the envelope", int64(n), b), legs: log}
	}
	body := ex.Response.Body
	if cap(body) < n {
		body = make([]byte, 0, n)
	}
	body = append(body, envelopeStart...)
	for i := range f.legs {
		if i > 0 {
			body = append(body, ',')
		}
		l := &f.legs[i]
		body = l.entry.append(body)
		if l.back {
			l.releaseExchange()
		}
	}
	ex.Response.Body = append(body, envelopeEnd...)
	ex.Response.Status = 200
	return Result{Exchange: ex, Outcome: upstream.Merged, legs: log}
}

func (l *leg) envelopeEntry() entry {
	e := entry{ssp: l.target.SSP.Name()}
	switch {
	case !l.back:
		e.err, e.untimed = "not_waited", true
	case l.outcome == upstream.SSPDisabled: // it was not asked
		e.err, e.untimed = l.outcome.String(), true
	case l.err != nil:
		e.err, e.took = l.err.Outcome.String(), l.took()
	default:
		a := &l.ex.Response
		e.status, e.took = a.Status, l.took()
		e.describe(a.Fields, a.Body)
	}
	return e
}
