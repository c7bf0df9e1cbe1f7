package pool

import (
	"slices"
	"time"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/wire/exchange"
)

// janitorPeriod is how often the janitor checks idle connections. An expired exclusive connection gets no request, however
// late the janitor is. A multiplexed connection gets requests until the janitor drains it.
const janitorPeriod = time.Second

// janitor closes expired connections, finds connections that the SSP has closed, follows changes of DNS, keeps
// min_idle connections open, and updates the need, once per janitorPeriod. Only its goroutine uses its fields:
// New starts it, and it stops when Pool.ctx ends.
type janitor struct {
	pool   *Pool
	looked time.Time // when it last called Dialer.Addresses
}

func (j *janitor) run() {
	tick := time.NewTicker(janitorPeriod)
	defer tick.Stop()
	for {
		select {
		case <-j.pool.ctx.Done():
			return
		case now := <-tick.C:
			j.sweep(now)
		}
	}
}

func (j *janitor) sweep(now time.Time) {
	p := j.pool
	p.mu.Lock()
	p.size.notePeak()
	p.demotion.turn(now)
	p.pruner.expireIdle(now)
	p.pruner.expireShared(now)
	p.finish() // sweep settles at its end

	j.sweepClosed(now)
	j.followAddresses(now)
	j.updateNeed(now)

	p.mu.Lock()
	p.learned.sweepEnded()
	p.conns.idleRule.growLater(now)
	p.conns.endpoints.ContinueSlowStart(now)
	p.pruner.suspectShort()
	p.conns.due |= dueRevive | dueGrow
	p.end(now)
}

// sweepClosed drops idle connections that the SSP has closed. So the gauges are right, and few
// requests find their connection closed. It checks one batch at a time outside the lock. A request
// that finds no other place waits for the batch.
func (j *janitor) sweepClosed(now time.Time) {
	p := j.pool
	p.mu.Lock()
	all := p.conns.endpoints.all // a reload creates a new slice
	p.mu.Unlock()
	for _, e := range all {
		j.sweepClosedOf(e, now)
	}
}

func (j *janitor) sweepClosedOf(e *endpoint, now time.Time) {
	p := j.pool
	var batch []*member
	for at := 0; ; at += len(batch) {
		p.mu.Lock()
		batch = e.idle.startCheck(batch, at, now.Add(-janitorPeriod))
		p.conns.checking = len(batch)
		p.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			m.conn.Idle()
		}
		p.mu.Lock()
		n := len(batch)
		batch = slices.DeleteFunc(batch, func(m *member) bool { return p.dropChecked(m, now) })
		e.idle.endCheck(batch, at, n-len(batch))
		p.conns.drainIdle(p.conns.kept - p.opts.MaxIdle) // a reload may have lowered it during the check
		p.conns.checking = 0
		p.conns.due |= dueServe
		p.end(now)
	}
}

// updateNeed computes the need once a second.
func (j *janitor) updateNeed(now time.Time) {
	p := j.pool
	s := p.stats.sums(now)
	p.mu.Lock()
	s.peak, p.size.peak = p.size.peak, p.size.load().peak()
	window, rate, hold := p.needs.note(s)
	protocol, perConn := p.size.next(), p.size.perConn()
	p.mu.Unlock()

	// Erlang C takes microseconds for hundreds of places, so it runs outside the lock.
	need := Need{WindowSeconds: window.Seconds(), ArrivalsPerSecond: rate, HoldSeconds: hold.Seconds(), Load: capacity.Load(rate, hold)}
	need.AdvisedPlaces = capacity.Places(rate, hold, capacity.DefaultWaitingShare)
	need.AdvisedConnections = ConnectionsFor(need.AdvisedPlaces, perConn, protocol)
	p.mu.Lock()
	p.needs.last = need
	p.mu.Unlock()
}

// ConnectionsFor returns how many connections of perConn places each a pool needs for the places, if it speaks pr.
func ConnectionsFor(places, perConn int, pr exchange.Protocol) int {
	if pr == exchange.HTTP2 {
		return capacity.HTTP2GrownConns(places, perConn)
	}
	return capacity.HTTP2Conns(places, perConn)
}

// followAddresses applies DNS changes to the connections. It replaces connections to removed
// addresses within renewal, and opens a connection to each new address, as far as the limits allow. A
// failed look-up changes nothing. A dial may find such a change first: it retires connections too, and opens its own.
func (j *janitor) followAddresses(now time.Time) {
	p := j.pool
	p.mu.Lock()
	due := len(p.conns.members) > 0 && now.Sub(j.looked) >= lookPeriod
	p.mu.Unlock()
	if !due {
		return
	}
	j.looked = now
	addrs, err := p.dialer.Addresses(p.ctx)
	if err != nil || len(addrs) == 0 {
		return
	}
	p.mu.Lock()
	defer p.end(now)
	if !p.conns.closed && len(p.governor.known) > 0 {
		p.changes.follow(addrs, true, now)
	}
}

// lookPeriod is how often the janitor asks for the SSP's addresses while connections are open. The
// dialer returns addresses from memory. It looks names up in the background when its result is too
// old.
const lookPeriod = 2 * time.Second
