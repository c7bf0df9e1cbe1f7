package pool

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// member is an SSP connection of the pool. It is the connection's Owner.
//
//	dialled ──▶ serving ──▶ draining ──▶ closed
//
// A serving member takes new requests: an exclusive one while it is idle, a multiplexed one while
// it has free places. A draining member takes none, and is closed when no place of it is in use.
//
// The lock. The connection calls Freed and Changed from its own goroutines, even before Dial has returned. They read
// only the field pool without Pool.mu. A request that has a place also reads the fields that dial sets, because it got
// the place under Pool.mu after they were set; worked; and, of an exclusive connection, fresh and idleFor, because
// they do not change until the request returns the place. The pool's own goroutines that check or close the
// connection read conn and why.
type member struct {
	pool   *Pool    // set before the dial starts, never changed
	leases [2]lease // one lease for usual requests, and one for a probe
	// single says that the connection carries one exchange at a time although it is HTTP/2, since it was
	// opened for an isolated request. It never changes after the dial.
	single bool

	// dial sets these fields before the pool knows the member; they never change.

	addr     exchange.Address
	ep       *endpoint
	version  int // Options.ConnVersion when the dial began
	conn     exchange.Conn
	protocol exchange.Protocol
	beside   bool // an HTTP/1 connection of http1Beside

	// Pool.mu guards the fields below.

	inUse    int // places in use by requests or by abandoned responses
	places   int // Conn.Places as of the last recount, within allowed and alone; 0 if draining
	counted  int // its part of connections.places: the larger of places and inUse
	requests int // requests that got a place since the dial
	refused  int // requests that the SSP did not process
	// avoidUntil is when requests prefer it again, after it refused one; zero = it refused none.
	avoidUntil time.Time
	allowed    int  // places while on probation, 0 = all
	alone      bool // in use by an exchange that allows no other outstanding exchange
	isolated   bool // in use by an isolated request
	fresh      bool // in use by the first exchange, directly after the dial
	aging      bool // too old, but still needed: drains when another connection is open
	violated   bool // closed after an HTTP/2 violation that is already counted
	draining   bool
	why        exchange.CloseReason // why it drains
	used       time.Time            // when a place was last acquired or released
	idleFor    time.Duration        // idle time before its place was last acquired; not reliable if multiplexed
	opened     time.Time
	retireAt   time.Time            // zero = never
	retireWhy  exchange.CloseReason // why it retires then
	idleLimit  time.Duration        // Conn.IdleLimit when the last place in use was released

	worked atomic.Bool // an exchange on it got a response; set only if multiplexed
}

// lease is the target of a Place. The probe of an ejected endpoint has its own lease, so that only
// the end of the probe decides about the endpoint.
type lease struct {
	m     *member
	probe bool
}

// init prepares m, which has no connection yet.
func (m *member) init(version int) {
	m.version, m.idleLimit = version, exchange.NoIdleLimit
	m.leases = [2]lease{{m: m}, {m: m, probe: true}}
}

// exclusive reports whether m carries one exchange at a time.
func (m *member) exclusive() bool { return m.protocol == exchange.HTTP1 || m.single }

// takes reports whether m, which is multiplexed, has a place for a request. alone says that the
// request must be alone.
func (m *member) takes(alone bool) bool {
	return m.inUse < m.places && (!alone || m.inUse == 0 || m.protocol != exchange.HTTP1Pipelined)
}

// outlivesAnnounced reports whether m, of which no place is in use, has been idle for as long as its SSP
// has announced.
func (m *member) outlivesAnnounced(now time.Time) bool {
	return m.idleLimit <= 0 || now.Sub(m.used) >= m.idleLimit
}

// Freed implements exchange.Owner.
func (m *member) Freed(held time.Duration, t exchange.Ticket) { m.pool.release(m, max(held, 0), t) }

// Changed implements exchange.Owner.
func (m *member) Changed() { m.pool.changed(m) }

// Place is one place on a connection, in use by one exchange. Do releases it, or Release if it is
// unused. Exactly one of them must be called, once.
type Place struct{ *lease }

// Do runs ex on the place. See exchange.Conn.
func (pl Place) Do(ex *exchange.Exchange) error {
	m := pl.m
	err := m.conn.Do(ex)
	if err == nil {
		m.pool.stats.successes.Inc()
		if ex.LostAfter > 0 {
			m.pool.lostRace(ex)
		}
		switch {
		case m.beside:
			m.pool.besideEnded(nil)
		case m.protocol != exchange.HTTP1:
			m.pool.demotion.responded(ex.Client)
			if !m.worked.Load() {
				m.worked.Store(true)
				m.pool.responded(m)
			}
		}
		return nil
	}
	if m.beside {
		m.pool.besideEnded(err)
	}
	e := exchange.AsError(err)
	if e.Stale && m.exclusive() {
		ex.LostAfter = max(m.idleFor, 1)
	}
	if e.BlamesHTTP2() || e.Progress == exchange.NotProcessed {
		m.pool.exchangeFailed(m, e, ex.Client)
	}
	return err
}

// Release releases the place of ex unused.
func (pl Place) Release(ex *exchange.Exchange) {
	pl.m.pool.release(pl.m, unused, ex.Ticket)
	if pl.probe {
		pl.m.pool.probeEnded(pl.m, exchange.Neutral)
	}
}

// Protocol returns the protocol of the place's connection.
func (pl Place) Protocol() exchange.Protocol { return pl.m.protocol }

// Host returns the value of the Host field of requests to the place's endpoint: host[:port].
func (pl Place) Host() string { return pl.m.addr.Authority }

// Ended records how an attempt on the place ended, after Do, and its result for the endpoint. client
// is the group of the client that sent the request. Ended reports whether the attempt failed at an
// endpoint that is out while others serve. Such a failure says nothing about the endpoints that get
// the requests.
func (pl Place) Ended(o exchange.Outcome, result exchange.Result, client rates.Group, t *exchange.Times) (excluded bool) {
	m := pl.m
	m.ep.stats.ended(o, t.Done.Sub(t.Acquired))
	if pl.probe {
		m.pool.probeEnded(m, result)
	} else if m.pool.conns.endpoints.Ended(m.ep.Endpoint, result, client, t.Done) {
		m.pool.eject(m.ep, t.Done)
	}
	return result == exchange.Failure && m.ep.Excluded()
}
