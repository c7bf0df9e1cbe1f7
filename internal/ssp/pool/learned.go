package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// learnedIdle learns after how long the SSP closes idle connections, from the ages of the
// connections that it closed. Guarded by Pool.mu.
//
// An age is the idle time that a connection reached for certain; an age below a second may be a guess:
// see knownAge. The janitor finds a FIN up to a
// second late, and a request that finds a FIN does not know when it came. So the learned limit is
// too low rather than too high. That is the safe side: idle_timeout must be below the limit.
//
// An SSP that also closes connections just after a response closes them for another reason: a
// number of requests, or an error. If a request meets such a close, it counts as an age of 0. If more
// than learnedQuantile of the ages are 0, nothing is learned.
type learnedIdle struct {
	ages  [learnedAges]time.Duration // the latest ages, in a ring
	n     int                        // total number of ages recorded
	limit time.Duration              // learned; 0 = the SSP has closed too few connections, or too many of them just after a response
	// advised is an idle_timeout below limit; 0 = none.
	advised time.Duration

	swept []time.Duration // of the sweep under way; at most learnedAges
	early time.Time       // when an age of 0 was last recorded

	// These decide when the limit grows; see idleRule.growLater.
	hourBegan time.Time // when the hour began that must pass without a close by the SSP
	closes    bool      // an age above 0 was recorded since the last sweep
	unclosed  bool      // within the hour, a connection was idle for advised, and the SSP did not close it
}

const (
	learnedAges = 256
	// learnedHolds is how long the limit stays without a close by the SSP.
	learnedHolds = time.Hour
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

// noteEarly records a close that idling does not explain. It records at most one per second, because an SSP
// that shuts down closes many connections at once.
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

// outlasted records that the pool closes m, and why. If m was idle for the advised timeout and the SSP had not
// closed it, the SSP's limit may have become longer.
func (l *learnedIdle) outlasted(m *member, why exchange.CloseReason, now time.Time) {
	if why == exchange.ClosedIdle && now.Sub(m.used) >= l.advised && m.requests > 0 {
		l.unclosed = true
	}
}

// raise makes every age above 0 at least as long as limit, and learns again.
func (l *learnedIdle) raise(limit time.Duration) {
	for i, age := range l.ages[:min(l.n, learnedAges)] {
		if age > 0 { // 0 has another reason
			l.ages[i] = max(age, limit)
		}
	}
	l.learn()
}

func (l *learnedIdle) note(ages ...time.Duration) {
	for _, age := range ages {
		if age > 0 {
			l.closes = true
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

// idleRule decides when idle connections close: after idle_timeout or, if the pool sizes itself, sooner if
// the SSP closes them sooner. Guarded by Pool.mu.
type idleRule struct {
	opts    *Options
	learned *learnedIdle
}

// timeout returns after how long an idle connection closes; 0 = never.
func (r *idleRule) timeout() time.Duration {
	if !r.opts.Auto.Enabled || r.opts.Auto.DryRun {
		return r.opts.IdleTimeout
	}
	return r.learnedTimeout()
}

// expired returns why m should take no more requests, or NotClosed.
func (r *idleRule) expired(m *member, now time.Time) exchange.CloseReason {
	timeout := r.timeout()
	switch {
	case !m.retireAt.IsZero() && !now.Before(m.retireAt):
		return m.retireWhy
	case m.inUse == 0 && (timeout > 0 && now.Sub(m.used) >= timeout || m.outlivesAnnounced(now)):
		return exchange.ClosedIdle
	default:
		return exchange.NotClosed
	}
}

// learnedTimeout returns what timeout is without a dry run.
func (r *idleRule) learnedTimeout() time.Duration {
	advised, configured := r.learned.advised, r.opts.IdleTimeout
	if advised == 0 || configured > 0 && configured < advised {
		return configured
	}
	return advised
}

// growLater lets the learned limit grow by a quarter after each hour in which the SSP closed no idle
// connection, though connections were idle for as long as the pool keeps them. Connections that the pool
// closes first do not show that the SSP's limit has become longer. If it has not, the SSP closes a few
// connections after the growth, and the limit is what it was. The limit does not grow beyond what
// idle_timeout needs.
func (r *idleRule) growLater(now time.Time) {
	l := r.learned
	switch {
	case l.closes || l.advised == 0 || r.learnedTimeout() == r.opts.IdleTimeout:
		l.hourBegan, l.unclosed = now, false
	case now.Sub(l.hourBegan) >= learnedHolds:
		if l.unclosed {
			l.raise(l.limit + l.limit/4)
		}
		l.hourBegan, l.unclosed = now, false
	}
	l.closes = false
}

// IdleTimeoutBelow returns an idle_timeout with which adbuffer closes before an SSP that closes after
// limit: 5 % and at least a second below, in whole seconds, or half of a limit below two seconds. It is 0 if
// limit is 0, which means unknown.
func IdleTimeoutBelow(limit time.Duration) time.Duration {
	below := min(limit*19/20, limit-time.Second).Truncate(time.Second)
	if below < time.Second { // the SSP closes within two seconds
		below = max(limit/2, 10*time.Millisecond).Truncate(10 * time.Millisecond)
	}
	if limit == 0 {
		return 0
	}
	return below
}

// knownAge returns the age to record for a connection whose FIN was found at the given age. From two seconds
// on, it is certain that the connection reached it: the janitor found the connection open up to a second
// earlier. Below that, no check may have come first, and half of the age is a guess.
func knownAge(age time.Duration) time.Duration { return max(age-janitorPeriod, age/2) }

// isIdleClose reports whether the SSP closed m because it was idle for age. The caller knows that no exchange
// was outstanding on m.
func (m *member) isIdleClose(age time.Duration) bool {
	why := m.conn.CloseReason()
	return age >= leastIdle && m.requests > 0 && (why == exchange.ClosedByPeer || why == exchange.ClosedGoaway)
}
