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

// takeElsewhere finds a place for ex, which an endpoint refused, at another active endpoint. Without a free place
// ex waits for a dial, if one is under way or may start. Otherwise all results are nil.
func (k *machine) takeElsewhere(ex *exchange.Exchange, w wish, now time.Time) (*lease, *waiter, error) {
	beside := k.conns.endpoints.Next(ex.Avoid).Beside
	if ex.Avoid == "" || beside == nil {
		return nil, nil, nil
	}
	if m := k.conns.pickBeside(k.conns.endpoints.all[beside.Index], w, now); m != nil {
		return k.conns.acquire(choice{m: m}, ex.Alone, now), nil, nil
	}
	// Half of the time is left for the endpoint that refused it.
	until := now.Add(ex.Deadline.Sub(now) / 2)
	switch {
	case k.queue.needsKey(ex):
		return nil, nil, errNoKey
	case !now.Before(until) || !k.dialElsewhere(ex.Avoid, beside.Index, now):
		return nil, nil, nil
	}
	waits := k.newWaiter()
	waits.begin(ex, false, &k.opts, now)
	waits.queued, waits.elsewhere, waits.pending = true, true, false
	k.queue.elsewhere = append(k.queue.elsewhere, waits)
	k.do.wake(waits, until)
	return nil, waits, nil
}

// dialElsewhere reports whether dials to active endpoints other than the one to avoid will likely bring a place
// for one more request. It starts a dial if necessary and possible. It tries the endpoint with the index first.
func (k *machine) dialElsewhere(avoid string, first int, now time.Time) bool {
	all := k.conns.endpoints.all
	coming := -len(k.queue.elsewhere)
	for _, e := range all {
		if e.Active() && e.Name != avoid {
			coming += e.dialing * k.conns.perConn()
		}
	}
	if coming > 0 {
		return true
	}
	for i := range all {
		e := all[(first+i)%len(all)]
		if e.Active() && e.Name != avoid && k.dialWorking(e, now) {
			return true
		}
	}
	return false
}

// giveElsewhere gives places of m, which was just dialled, to refused requests that wait for an endpoint
// other than the endpoint that refused them. It reports whether a request got a place.
func (k *machine) giveElsewhere(m *member, r waitResult, now time.Time) (given bool) {
	if !m.ep.Active() {
		return false
	}
	for i := 0; i < len(k.queue.elsewhere); {
		w := k.queue.elsewhere[i]
		if w.avoid == m.ep.Name || m.exclusive() && given || !m.exclusive() && !m.takes(w.alone) {
			i++
			continue
		}
		m.fresh, given = m.exclusive(), true
		k.queue.leaveElsewhere(w)
		k.giveTo(w, choice{m: m}, r, now)
	}
	return given
}

// serveElsewhere gives free places to refused requests that wait for an endpoint other than the endpoint that
// refused them.
func (k *machine) serveElsewhere(now time.Time) {
	without := "" // requests that avoid this endpoint get no place
	for i := 0; i < len(k.queue.elsewhere); {
		w := k.queue.elsewhere[i]
		if w.avoid == without {
			i++
			continue
		}
		to := k.conns.pick(wish{avoid: w.avoid, alone: w.alone, resent: w.resent, elsewhere: true}, now)
		if to.m == nil {
			without = w.avoid
			continue
		}
		k.queue.leaveElsewhere(w)
		k.giveTo(w, to, waitResult{}, now)
	}
}

// dialElsewhereEnded ends the wait of the requests for which no dial is under way.
func (k *machine) dialElsewhereEnded(now time.Time) {
	for i := 0; i < len(k.queue.elsewhere); {
		w := k.queue.elsewhere[i]
		if slices.ContainsFunc(k.conns.endpoints.all, func(e *endpoint) bool { return e.dialing > 0 && e.Name != w.avoid }) {
			i++
			continue
		}
		k.endElsewhere(w, now)
	}
}

// endElsewhere ends the wait of w for another endpoint: w waits in the queue for a place of any endpoint.
func (k *machine) endElsewhere(w *waiter, now time.Time) {
	k.queue.leaveElsewhere(w)
	k.queue.push(w, now)
	k.do.wake(w, w.until(now))
	k.conns.due |= dueServe
}

func (q *queue) leaveElsewhere(w *waiter) {
	i := slices.Index(q.elsewhere, w)
	q.elsewhere = slices.Delete(q.elsewhere, i, i+1)
	if len(q.elsewhere) == 0 {
		q.elsewhere = nil
	}
	w.elsewhere, w.queued = false, false
}
