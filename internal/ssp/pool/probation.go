package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// probation handles an SSP that closes its multiplexed connections after few requests (GOAWAY, or
// an explicit Connection: close). The SSP does not process the requests sent later, and the pool
// sends them again from the front of the queue. If all of them went to the next connection at once,
// the SSP would again process only a few.
//
// A connection fell short if the SSP closed it and refused at least as many of its requests as it
// processed. A single such connection proves nothing: an SSP that restarts closes its newest
// connections too. Such connections are in a row if at most shortWithin passes from one to the next.
// After shortInRow of them in a row, a new connection first has only as many
// places as the last one processed requests. After that many exchanges on it have ended, each
// further exchange doubles its places. Probation ends when a connection has all its places.
//
// Guarded by Pool.mu.
type probation struct {
	places int       // first places of a new connection; 0 = all
	short  int       // connections in a row that fell short
	last   time.Time // when the last of these connections fell short
}

const (
	// shortInRow is how many connections in a row must fall short before new ones have fewer places.
	shortInRow = 3
	// shortWithin is the longest time between two such connections in a row.
	shortWithin = 10 * time.Second
)

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
	m.allowed *= 2
	if m.allowed >= m.conn.Places() && m.conn.Places() > 0 {
		m.allowed = 0
		*pr = probation{}
	}
}

// refused records that the SSP did not process a request on m. It reports whether m ended before
// the SSP processed any request on it.
func (pr *probation) refused(m *member, now time.Time) (unprocessed bool) {
	m.refused++
	if m.conn.CloseReason() == exchange.NotClosed {
		return false // the SSP refused one request, and the connection stays open
	}
	processed := m.requests - m.refused // includes requests that are still under way
	if m.refused >= processed {
		pr.fellShort(m, now)
		if pr.short >= shortInRow {
			pr.places = max(1, processed)
		}
	}
	return processed == 0
}

// fellShort records that m fell short. Connections that were open together end together, and count as one: m does
// not count if it was opened before the last connection that counted fell short.
func (pr *probation) fellShort(m *member, now time.Time) {
	switch {
	case pr.short > 0 && !m.opened.After(pr.last):
		return
	case now.Sub(pr.last) > shortWithin:
		pr.short = 0
	}
	pr.short++
	pr.last = now
}
