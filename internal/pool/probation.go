package pool

import "adbuffer/internal/upstream"

// probation handles an SSP that closes its multiplexed connections after few requests (GOAWAY, or
// an explicit Connection: close). The SSP does not process the requests sent later, and the pool
// sends them again from the front of the queue. If all of them went to the next connection at once,
// the SSP would again process only a few.
//
// So a new connection first has only as many places as its predecessor processed requests. After
// that many exchanges on it have ended, each further exchange adds a place. Probation ends when a
// connection has all its places.
//
// Guarded by Pool.mu.
type probation struct {
	places int // first places of a new connection; 0 = all
}

// limit returns how many of n places a new connection has.
func (pr *probation) limit(n int) int {
	if pr.places > 0 {
		return min(n, pr.places)
	}
	return n
}

// earn records that an exchange on m, which is on probation, has ended.
func (pr *probation) earn(m *member) {
	if ended := m.requests - m.inUse; ended <= pr.places {
		return
	}
	m.allowed++
	if m.allowed >= m.conn.Places() && m.conn.Places() > 0 {
		m.allowed, pr.places = 0, 0
	}
}

// refused records that the SSP did not process a request on m. It reports whether m ended before
// the SSP processed any request on it.
func (pr *probation) refused(m *member) (unprocessed bool) {
	m.refused++
	if m.conn.CloseReason() == upstream.NotClosed {
		return false // the SSP refused one request, and the connection stays open
	}
	processed := m.requests - m.refused // includes requests that are still under way
	if m.refused >= processed {
		pr.places = max(1, processed)
	}
	return processed == 0
}
