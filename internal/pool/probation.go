package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// probation is for an SSP that closes its multiplexed connections after few
// requests, and so refuses those that were sent behind (GOAWAY, or an explicit
// Connection: close). Requests that are refused are sent again, at the front of
// the queue. If all of them went to the next connection at once, it would process
// as few of them, and by chance.
//
// So a new connection has only as many places at first as the last one of that
// kind processed requests. Once as many exchanges on it have ended, each further
// one gives it another place. Probation is over when a connection has got all its
// places that way.
//
// Guarded by pool.mu.
type probation struct {
	places int // of a new connection at first; 0 = all
}

// limit returns how many of n places a new connection has.
func (pr *probation) limit(n int) int {
	if pr.places > 0 {
		return min(n, pr.places)
	}
	return n
}

// earnLocked is told that an exchange on m, which is on probation, has ended.
func (p *Pool) earnLocked(m *member) {
	if ended := m.requests - m.inUse; ended <= p.probation.places {
		return
	}
	if m.allowed++; m.allowed >= m.conn.Places() && m.conn.Places() > 0 {
		m.allowed, p.probation.places = 0, 0
	}
}

// refusedOn is told of an exchange on m that the SSP did not process.
func (p *Pool) refusedOn(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.refused++; m.conn.CloseReason() == upstream.NotClosed {
		return // it refused one request, and goes on
	}
	processed := m.requests - m.refused // or still under way
	if m.refused >= processed {
		p.probation.places = max(1, processed)
	}
	if processed == 0 {
		p.governor.wastedOn(m.addr, time.Now())
	}
}

// workedOn is told of the first exchange on m that had a response.
func (p *Pool) workedOn(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.governor.workedOn(m.addr)
	p.growLocked(time.Now())
}
