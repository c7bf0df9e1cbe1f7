package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// learnedIdle finds out after how long the peer closes idle connections: from
// the ages of those that it closed, as far as they are known. Guarded by
// pool.mu.
//
// An age is what the connection was known to have reached: the janitor finds a
// FIN up to a second late, and a request that meets one does not know for how
// long it has been there. So learned is rather too low than too high, which is
// the safe side: idle_timeout belongs below it.
type learnedIdle struct {
	ages  [learnedAges]time.Duration // the latest, in a ring
	n     int                        // ages taken
	limit time.Duration              // learned; 0 while too few connections were closed by the peer

	swept []time.Duration // of the sweep under way; at most learnedAges
}

const (
	learnedAges = 256
	// learnedLeast is how many closes make an idle limit. One peer that was
	// restarted has closed a few connections too.
	learnedLeast = 5
	// learnedQuantile is low, since the limit is where the first ones go: a
	// balancer's servers need not agree.
	learnedQuantile = 0.05
)

func (l *learnedIdle) note(ages ...time.Duration) {
	for _, age := range ages {
		l.ages[l.n%learnedAges] = age
		l.n++
	}
	if l.n < learnedLeast {
		return
	}
	sorted := slices.Clone(l.ages[:min(l.n, learnedAges)])
	slices.Sort(sorted)
	l.limit = sorted[int(learnedQuantile*float64(len(sorted)))]
}

// sweptClosed collects what the janitor finds closed in one sweep.
func (l *learnedIdle) sweptClosed(age time.Duration) {
	if len(l.swept) < learnedAges {
		l.swept = append(l.swept, age)
	}
}

// sweepEnded learns from a sweep. A peer's idle limit closes, within the second
// between two sweeps, connections of one age; where their ages are further
// apart it went away, or dropped everything, and that teaches nothing.
func (l *learnedIdle) sweepEnded() {
	if len(l.swept) == 0 {
		return
	}
	if slices.Max(l.swept)-slices.Min(l.swept) <= 2*janitorPeriod {
		l.note(l.swept...)
	}
	l.swept = l.swept[:0]
}

// leastIdle is the least age at which a close has to do with idling: a peer
// that closes right behind an answer has other reasons.
const leastIdle = 100 * time.Millisecond

// knownAge is what is sure of the age of a connection whose FIN was found age
// after its last use: the janitor has looked a second before, if there was time.
func knownAge(age time.Duration) time.Duration { return max(age-janitorPeriod, age/2) }

// isIdleClose reports whether the peer closed m, on which nothing was
// outstanding, by what it calls idle.
func (m *member) isIdleClose(age time.Duration) bool {
	why := m.conn.CloseReason()
	return age >= leastIdle && m.requests > 0 && (why == upstream.ClosedByPeer || why == upstream.ClosedGoaway)
}

// lostRace is told of a request that was sent on a connection which the peer
// closed at that very moment: so long is too long.
func (p *Pool) lostRace(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.exclusive() && m.idleFor >= leastIdle {
		p.learned.note(m.idleFor)
	}
}
