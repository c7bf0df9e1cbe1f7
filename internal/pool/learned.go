package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// learnedIdle learns after how long the SSP closes idle connections, from the ages of the
// connections that it closed. Guarded by Pool.mu.
//
// An age is the idle time that a connection reached for certain. The janitor finds a FIN up to a
// second late, and a request that finds a FIN does not know when it came. So the learned limit is
// too low rather than too high. That is the safe side: idle_timeout must be below the limit.
//
// An SSP that also closes connections just after a response closes them for another reason: a
// number of requests, or an error. Such a close counts as an age of 0. With more than a few of
// them nothing is learned.
type learnedIdle struct {
	ages  [learnedAges]time.Duration // the latest ages, in a ring
	n     int                        // total number of ages recorded
	limit time.Duration              // learned; 0 while the SSP has closed too few connections
	// advised is an idle_timeout below limit; 0 = none.
	advised time.Duration

	swept  []time.Duration // of the sweep under way; at most learnedAges
	longer int             // canaries that outlasted the limit, since an idle connection was closed
	early  time.Time       // when an age of 0 was last recorded
}

const (
	learnedAges = 256
	// learnedLeast is how many closes are needed to learn a limit. An SSP that restarts closes a
	// few connections too.
	learnedLeast = 5
	// learnedQuantile is low because the servers behind a balancer may differ. The limit is where
	// the first of them closes.
	learnedQuantile = 0.05
	// leastIdle is the minimum age of a close because of idling. An SSP that closes directly after
	// a response has other reasons.
	leastIdle = 100 * time.Millisecond
)

// closed records that the SSP closed m just now.
func (l *learnedIdle) closed(m *member, age time.Duration) {
	if m.isIdleClose(age) {
		l.note(age)
	}
}

// foundClosed records that a request found m closed by the SSP.
func (l *learnedIdle) foundClosed(m *member, now time.Time) {
	if m.isIdleClose(m.idleFor) {
		l.note(knownAge(m.idleFor))
	} else if m.isIdleClose(leastIdle) {
		l.noteEarly(now)
	}
}

// lostRace records that the SSP closed an exclusive connection, which had been idle for that long, while a
// request was sent on it, and that the request got a response on another connection. A close alone may be
// the SSP's answer to the request: nginx calls that status 444.
func (l *learnedIdle) lostRace(idle time.Duration, now time.Time) {
	if idle >= leastIdle {
		l.note(idle)
	} else {
		l.noteEarly(now)
	}
}

// noteEarly records a close that idling does not explain, one in a second: an SSP that stops
// closes many connections once.
func (l *learnedIdle) noteEarly(now time.Time) {
	if now.Sub(l.early) >= janitorPeriod {
		l.early = now
		l.note(0)
	}
}

// sweptClosed records that the janitor found m closed by the SSP.
func (l *learnedIdle) sweptClosed(m *member, age time.Duration) {
	if m.isIdleClose(age) && len(l.swept) < learnedAges {
		l.swept = append(l.swept, knownAge(age))
	}
}

// sweepEnded learns from a sweep. Between two sweeps, an SSP's idle limit closes connections of
// similar age. If the ages differ more, the SSP stopped or dropped all its connections, and the
// pool learns nothing.
func (l *learnedIdle) sweepEnded() {
	if len(l.swept) == 0 {
		return
	}
	if slices.Max(l.swept)-slices.Min(l.swept) <= 2*janitorPeriod {
		l.note(l.swept...)
	}
	l.swept = l.swept[:0]
}

// outlasted records that a canary stayed open for longer than the limit.
func (l *learnedIdle) outlasted(idle time.Duration) {
	l.longer++
	if l.longer < canariesNeeded {
		return
	}
	l.longer = 0
	for i, age := range l.ages[:min(l.n, learnedAges)] {
		if age > 0 { // 0 has another reason
			l.ages[i] = max(age, idle)
		}
	}
	l.learn()
}

func (l *learnedIdle) note(ages ...time.Duration) {
	for _, age := range ages {
		if age > 0 {
			l.longer = 0
		}
		l.ages[l.n%learnedAges] = age
		l.n++
	}
	l.learn()
}

// learn computes the limit from the ages.
func (l *learnedIdle) learn() {
	if l.n < learnedLeast {
		return
	}
	sorted := slices.Clone(l.ages[:min(l.n, learnedAges)])
	slices.Sort(sorted)
	l.limit = sorted[int(learnedQuantile*float64(len(sorted)))]
	l.advised = IdleTimeoutBelow(l.limit)
}

// knownAge returns the minimum age at which the SSP can have closed a connection whose FIN was
// found at the given age. The janitor checked the connection a second earlier, if it was idle then.
func knownAge(age time.Duration) time.Duration { return max(age-janitorPeriod, age/2) }

// isIdleClose reports whether the SSP closed m because it was idle. No exchange was outstanding on
// m.
func (m *member) isIdleClose(age time.Duration) bool {
	why := m.conn.CloseReason()
	return age >= leastIdle && m.requests > 0 && (why == upstream.ClosedByPeer || why == upstream.ClosedGoaway)
}
