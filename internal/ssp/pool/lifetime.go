package pool

import (
	"math/rand/v2"
	"slices"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// renewal is the time within which SetOptions replaces connections with outdated settings. The pool
// replaces them one by one, so that it does not dial all of them at once.
const renewal = 5 * time.Second

// replaceWithin bounds how long an old connection stays because the pool can open no other one. An
// SSP that refuses new connections must not keep old ones alive forever. The pool replaces a closed
// connection at once only if it was used within this time.
const replaceWithin = time.Minute

// expired returns why m should take no more requests, or NotClosed.
func (c *connections) expired(m *member, now time.Time) exchange.CloseReason {
	timeout := c.idleRule.timeout()
	switch {
	case !m.retireAt.IsZero() && !now.Before(m.retireAt):
		return m.retireWhy
	case m.inUse == 0 && (timeout > 0 && now.Sub(m.used) >= timeout || m.outlivesAnnounced(now)):
		return exchange.ClosedIdle
	default:
		return exchange.NotClosed
	}
}

// setMaxAge sets when m is too old: max_age ±10 % after it was opened, so that connections that
// were opened together do not close together.
func (m *member) setMaxAge(maxAge time.Duration) {
	m.retireAt, m.retireWhy = time.Time{}, exchange.ClosedMaxAge
	if maxAge > 0 {
		m.retireAt = m.opened.Add(rates.Jitter(maxAge, 0.1))
	}
}

// renew retires m soon if it was opened with outdated settings.
func (m *member) renew(o *Options, now time.Time) {
	if m.version != o.ConnVersion {
		m.retireSoon(exchange.ClosedMaxAge, now)
	}
}

// expireIdle drains the idle connections that are too old or were idle for too long. The list is not
// ordered by age, so it checks all of them.
func (c *connections) expireIdle(now time.Time) {
	for _, e := range c.endpoints.all {
		e.idle.list = slices.DeleteFunc(e.idle.list, func(m *member) bool {
			why := c.expired(m, now)
			if why == exchange.NotClosed {
				return false
			}
			c.kept--
			c.idleRule.learned.outlasted(m, why, now)
			c.drain(m, why)
			return true
		})
	}
}

// expireShared drains the multiplexed connections that are too old or were idle for too long. A
// connection stays, marked as aging, if it is in use and the other connections are not roomy. It
// drains once another connection is open. expireShared also drains a spare connection after an
// endpoint without connections got one beyond max_http2_conns.
func (c *connections) expireShared(now time.Time) {
	if c.shared.staying() > c.sharedLimit() {
		if m := c.shared.spare(); m != nil {
			c.drain(m, exchange.ClosedDrain)
		}
	}
	for i := len(c.shared.list) - 1; i >= 0; i-- {
		m := c.shared.list[i]
		switch why := c.expired(m, now); {
		case why == exchange.NotClosed:
		case m.inUse > 0 && !c.shared.roomy(m) && now.Sub(m.retireAt) < replaceWithin:
			if !m.aging {
				m.aging = true
				c.shared.aging++
			}
		default:
			c.idleRule.learned.outlasted(m, why, now)
			c.drain(m, why)
		}
	}
}

// retireSoon retires m within renewal, at a random moment, because of why.
func (m *member) retireSoon(why exchange.CloseReason, now time.Time) {
	if at := now.Add(rand.N(renewal)); m.retireAt.IsZero() || at.Before(m.retireAt) {
		m.retireAt, m.retireWhy = at, why
	}
}
