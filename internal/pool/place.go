package pool

import "adbuffer/internal/upstream"

// Place is one place on a connection, lent to one exchange. It is given back
// by Do, or, unused, by Return; exactly one of them must be called, once.
type Place struct{ m *member }

// Do runs ex on the place. See upstream.Conn.
func (pl Place) Do(ex *upstream.Exchange) error {
	m := pl.m
	err := m.conn.Do(ex)
	if err == nil {
		if !m.exclusive() && !m.worked.Load() {
			m.worked.Store(true)
			m.pool.workedOn(m)
		}
		return nil
	}
	e := upstream.AsError(err)
	if e.Stale {
		m.pool.lostRace(m)
	}
	if e.Demote || e.RefusesHTTP2 {
		m.pool.breached(m, e)
	}
	if e.Progress == upstream.NotProcessed && !m.exclusive() {
		m.pool.refusedOn(m)
	}
	return err
}

// Return gives the place back without having used it.
func (pl Place) Return() { pl.m.pool.free(pl.m, unused) }

// Protocol returns what the place's connection speaks.
func (pl Place) Protocol() upstream.Protocol { return pl.m.protocol }

// Host returns what the endpoint that the place leads to is called in requests:
// host[:port].
func (pl Place) Host() string {
	if a := &pl.m.addr; a.Authority != "" {
		return a.Authority
	}
	return pl.m.addr.Host
}
