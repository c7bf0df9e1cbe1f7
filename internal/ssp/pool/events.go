package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// end ends an event that happened at now: it settles what the event has made necessary, unlocks, and
// acts. The zero time means that the event did not read the clock.
func (p *Pool) end(now time.Time) {
	p.settle(now)
	p.finish()
}

// finish unlocks after an event that has been settled, and does what the event has led to.
func (p *Pool) finish() {
	if p.verify != nil {
		p.verify(p)
	}
	if !p.conns.hasActions {
		p.mu.Unlock()
		return
	}
	do := p.do
	p.do, p.conns.hasActions = actions{notEmpty: do.notEmpty}, false
	p.act(&do)
	p.mu.Unlock()
	for w := do.results; w != nil; {
		next := w.next // once it has its result, the waiter may wait again
		w.ready <- struct{}{}
		w = next
	}
}

// act starts what the actions say, except the results of waiters. Nothing of it blocks. Pool.mu is
// held, so that Close waits for the goroutines.
func (p *Pool) act(do *actions) {
	for w := do.wakes; w != nil; w = w.nextWake {
		w.waking = false
		if w.queued {
			w.timer.Reset(time.Until(w.wakeAt))
		}
	}
	for _, o := range do.dials {
		o.m.pool = p
		p.opts.Lag.Start()
		p.wg.Go(func() { p.dial(o) })
	}
	for _, m := range do.closes {
		p.wg.Go(func() { p.close(m) })
	}
	for _, e := range do.checks {
		p.checker.checkSoon(e)
	}
	if p.opts.Events != nil {
		p.report(p.opts.Events, do.events)
	}
	if !do.growAt.IsZero() && !p.conns.closed {
		p.growSoon.Set(do.growAt)
	}
	if !do.reviveAt.IsZero() && !p.conns.closed {
		p.reviveSoon.Set(do.reviveAt)
	}
	if do.warm {
		close(p.isWarm)
	}
	if do.besideDialed != nil {
		close(do.besideDialed)
	}
	if do.emptied {
		close(p.emptied)
	}
}

// report tells to about events. The goroutines read no settings.
func (p *Pool) report(to func(balancer.Event), events []balancer.Event) {
	for _, event := range events {
		p.wg.Go(func() { to(event) })
	}
}

// close closes m's connection, in its own goroutine because a close may write (TLS's close_notify).
// The connection counts towards max_conns until Close has returned.
func (p *Pool) close(m *member) {
	m.conn.Close(m.why)
	p.mu.Lock()
	defer p.end(time.Time{})
	p.closeEnded()
}

func (p *Pool) growAgain() {
	p.mu.Lock()
	defer p.end(time.Time{})
	p.growSoon.At = time.Time{}
	p.growDue()
}

func (p *Pool) reviveAgain() {
	p.mu.Lock()
	defer p.end(time.Time{})
	p.reviveSoon.At = time.Time{}
	p.reviveDue()
}

func (p *Pool) eject(e *endpoint, now time.Time) {
	p.mu.Lock()
	defer p.end(now)
	if !p.conns.closed {
		p.changes.apply(e, p.conns.endpoints.Eject(e.Endpoint, now))
	}
}

// probeEnded records how the first request after an ejection ended.
func (p *Pool) probeEnded(m *member, result exchange.Result) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.probeOver(m, result, now)
}

// besideEnded records how an exchange on a connection beside HTTP/2 ended.
func (p *Pool) besideEnded(err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.beside.ended(err, now)
}
