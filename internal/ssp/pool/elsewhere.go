package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// An endpoint that refused a request will likely refuse it again. If no other active endpoint has a free place, the
// request waits in queue.elsewhere for a dial to one:
//
//	refused ──▶ elsewhere ── a place at another endpoint ──▶ Place.Do
//	                 │
//	                 └── no dial succeeds in time ──▶ a place at any endpoint, or the queue
//
// The requests behind it do not wait: they may use the endpoint that refused it.

// takeElsewhereLocked finds a place for ex, which an endpoint refused, at another active endpoint. Without a free place
// ex waits for a dial, if one is under way or may start. Otherwise all results are nil.
func (p *Pool) takeElsewhereLocked(ex *exchange.Exchange, w wish, now time.Time) (*lease, *waiter, error) {
	beside := p.conns.endpoints.Next(ex.Avoid).Beside
	if ex.Avoid == "" || beside == nil {
		return nil, nil, nil
	}
	if m := p.conns.pickBeside(p.conns.endpoints.all[beside.Index], w, now); m != nil {
		return p.conns.acquire(choice{m: m}, ex.Alone, now), nil, nil
	}
	// Half of the time is left for the endpoint that refused it.
	until := now.Add(ex.Deadline.Sub(now) / 2)
	switch {
	case p.queue.needsKey(ex):
		return nil, nil, errNoKey
	case !now.Before(until) || !p.dialElsewhereLocked(ex.Avoid, beside.Index, now):
		return nil, nil, nil
	}
	waits := p.waiters.Get().(*waiter)
	waits.begin(ex, false, &p.opts, now)
	waits.queued, waits.elsewhere, waits.pending = true, true, false
	p.queue.elsewhere = append(p.queue.elsewhere, waits)
	waits.timer.Reset(until.Sub(now))
	return nil, waits, nil
}

// dialElsewhereLocked reports whether dials to active endpoints other than the one to avoid will likely bring a place
// for one more request. It starts a dial if necessary and possible. It tries the endpoint with the index first.
func (p *Pool) dialElsewhereLocked(avoid string, first int, now time.Time) bool {
	all := p.conns.endpoints.all
	coming := -len(p.queue.elsewhere)
	for _, e := range all {
		if e.Active() && e.Name != avoid {
			coming += e.dialing * p.conns.perConn()
		}
	}
	if coming > 0 {
		return true
	}
	for i := range all {
		e := all[(first+i)%len(all)]
		if e.Active() && e.Name != avoid && p.dialWorkingLocked(e, now) {
			return true
		}
	}
	return false
}

// giveElsewhereLocked gives places of m, which was just dialled, to refused requests that wait for an endpoint
// other than the endpoint that refused them. It reports whether a request got a place.
func (p *Pool) giveElsewhereLocked(m *member, r waitResult, now time.Time) (given bool) {
	if !m.ep.Active() {
		return false
	}
	for i := 0; i < len(p.queue.elsewhere); {
		w := p.queue.elsewhere[i]
		if w.avoid == m.ep.Name || m.exclusive() && given || !m.exclusive() && !m.takes(w.alone) {
			i++
			continue
		}
		m.fresh, given = m.exclusive(), true
		p.queue.leaveElsewhere(w)
		p.giveToLocked(w, choice{m: m}, r, now)
	}
	return given
}

// serveElsewhereLocked gives free places to refused requests that wait for an endpoint other than the endpoint that
// refused them.
func (p *Pool) serveElsewhereLocked(now time.Time) {
	without := "" // requests that avoid this endpoint get no place
	for i := 0; i < len(p.queue.elsewhere); {
		w := p.queue.elsewhere[i]
		if w.avoid == without {
			i++
			continue
		}
		to := p.conns.pick(wish{avoid: w.avoid, alone: w.alone, resent: w.resent, elsewhere: true}, now)
		if to.m == nil {
			without = w.avoid
			continue
		}
		p.queue.leaveElsewhere(w)
		p.giveToLocked(w, to, waitResult{}, now)
	}
}

// dialElsewhereEndedLocked ends the wait of the requests for which no dial is under way.
func (p *Pool) dialElsewhereEndedLocked(now time.Time) {
	for i := 0; i < len(p.queue.elsewhere); {
		w := p.queue.elsewhere[i]
		if slices.ContainsFunc(p.conns.endpoints.all, func(e *endpoint) bool { return e.dialing > 0 && e.Name != w.avoid }) {
			i++
			continue
		}
		p.endElsewhereLocked(w, now)
	}
}

// endElsewhereLocked ends the wait of w for another endpoint: w waits in the queue for a place of any endpoint.
func (p *Pool) endElsewhereLocked(w *waiter, now time.Time) {
	p.queue.leaveElsewhere(w)
	p.queue.push(w, now)
	w.arm(now)
	p.conns.due |= dueServe
}

func (q *queue) leaveElsewhere(w *waiter) {
	i := slices.Index(q.elsewhere, w)
	q.elsewhere = slices.Delete(q.elsewhere, i, i+1)
	if len(q.elsewhere) == 0 {
		q.elsewhere = nil
	}
	w.elsewhere, w.queued = false, false
}
