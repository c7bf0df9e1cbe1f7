package pool

import "adbuffer/internal/upstream"

// Place is one place on a connection, in use by one exchange. It is released by Do, or, unused, by
// Release; exactly one of them must be called, once.
type Place struct{ m *member }

// Do runs ex on the place. See upstream.Conn.
func (pl Place) Do(ex *upstream.Exchange) error {
	m := pl.m
	err := m.conn.Do(ex)
	if err == nil {
		if !m.exclusive() && !m.worked.Load() {
			m.worked.Store(true)
			m.pool.useful(m)
		}
		return nil
	}
	if e := upstream.AsError(err); e.Stale || e.Demote || e.RefusesHTTP2 || e.Progress == upstream.NotProcessed {
		m.pool.failed(m, e)
	}
	return err
}

// Release releases the place unused.
func (pl Place) Release() { pl.m.pool.release(pl.m, unused) }

// Protocol returns what the place's connection speaks.
func (pl Place) Protocol() upstream.Protocol { return pl.m.protocol }

// Host returns the value of the Host field of requests to the place's endpoint: host[:port].
func (pl Place) Host() string { return pl.m.addr.Host }
