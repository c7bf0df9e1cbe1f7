package pool

import (
	"math/rand/v2"
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

// retireSoon retires m within renewal, at a random moment, because of why.
func (m *member) retireSoon(why exchange.CloseReason, now time.Time) {
	if at := now.Add(rand.N(renewal)); m.retireAt.IsZero() || at.Before(m.retireAt) {
		m.retireAt, m.retireWhy = at, why
	}
}
