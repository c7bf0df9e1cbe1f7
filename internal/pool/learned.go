package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// learnedIdle finds out after how long the SSP closes idle connections, from the ages of those that
// it closed. Guarded by Pool.mu.
//
// An age is the idle time that a connection is known to have reached. The janitor finds a FIN up to
// a second late, and a request that finds one does not know when it came. So the learned limit is
// too low rather than too high. That is the safe side: idle_timeout belongs below it.
type learnedIdle struct {
	ages  [learnedAges]time.Duration // the latest, in a ring
	n     int                        // ages taken
	limit time.Duration              // learned; 0 while the SSP has closed too few connections

	swept []time.Duration // of the sweep under way; at most learnedAges
}

const (
	learnedAges = 256
	// learnedLeast is how many closes make a limit. An SSP that restarts closes a few
	// connections too.
	learnedLeast = 5
	// learnedQuantile is low, because the servers behind a balancer may differ, and the limit
	// is where the first of them closes.
	learnedQuantile = 0.05
	// leastIdle is the least age at which a close has to do with idling. An SSP that closes
	// right behind a response has other reasons.
	leastIdle = 100 * time.Millisecond
)

// closed notes that the SSP closed m just now.
func (l *learnedIdle) closed(m *member, age time.Duration) {
	if m.isIdleClose(age) {
		l.note(age)
	}
}

// foundClosed notes that a request found m closed by the SSP.
func (l *learnedIdle) foundClosed(m *member) {
	if m.isIdleClose(m.idleFor) {
		l.note(knownAge(m.idleFor))
	}
}

// lostRace notes that the SSP closed m while a request was sent on it.
func (l *learnedIdle) lostRace(m *member) {
	if m.exclusive() && m.idleFor >= leastIdle {
		l.note(m.idleFor)
	}
}

// sweptClosed notes that the janitor found m closed by the SSP.
func (l *learnedIdle) sweptClosed(m *member, age time.Duration) {
	if m.isIdleClose(age) && len(l.swept) < learnedAges {
		l.swept = append(l.swept, knownAge(age))
	}
}

// sweepEnded learns from a sweep. Between two sweeps, an SSP's idle limit closes connections of
// about one age. If the ages differ more, the SSP stopped or dropped all its connections, and
// nothing is learned.
func (l *learnedIdle) sweepEnded() {
	if len(l.swept) == 0 {
		return
	}
	if slices.Max(l.swept)-slices.Min(l.swept) <= 2*janitorPeriod {
		l.note(l.swept...)
	}
	l.swept = l.swept[:0]
}

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

// knownAge returns the least age at which the SSP can have closed a connection whose FIN was found
// at the given age. The janitor checked it a second before, if there was time.
func knownAge(age time.Duration) time.Duration { return max(age-janitorPeriod, age/2) }

// isIdleClose reports whether the SSP closed m because it was idle. Nothing was outstanding on m.
func (m *member) isIdleClose(age time.Duration) bool {
	why := m.conn.CloseReason()
	return age >= leastIdle && m.requests > 0 && (why == upstream.ClosedByPeer || why == upstream.ClosedGoaway)
}
