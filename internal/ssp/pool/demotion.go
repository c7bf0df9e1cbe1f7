package pool

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// demotion keeps the pool from offering HTTP/2 to an SSP that violates or refuses it. Each demotion lasts
// twice as long as the previous one, up to demotedAtMost; the first one, and one that begins long after the
// previous one ended, lasts demotedFor. When a demotion ends, the next dial offers HTTP/2 again.
//
//	HTTP/2 ── violations ──▶ trial ── HTTP/1 works ──▶ HTTP/1 ── the time is over ──▶ HTTP/2
//	   ▲                       │                         │
//	   └───────────────────────┴─────────────────────────┘
//	     HTTP/1 does not work: no trial for demotedFor
//
// If the handshake of a dial violates HTTP/2, a demotion begins at once, without a trial.
//
// One client's requests must not demote the SSP for all: HAProxy resets the stream of a request that is
// larger than its buffer with PROTOCOL_ERROR. So violations count only in a row, without a response over
// HTTP/2 in between. The row must last for brokenFor, and must concern most groups of the clients for
// which HTTP/2 has worked within a minute or two. After a demotion, the row must do neither until HTTP/2 works
// again. Then a trial must show that HTTP/1 works: one request on an HTTP/1 connection beside the HTTP/2
// connections gets a response; see http1Beside. Connections that close before their first request are no
// client's fault: three of them in a row lead to a demotion without a trial.
//
// Guarded by Pool.mu, except responded.
type demotion struct {
	_      cpu.CacheLinePad
	row    rates.Row     // violations since the last response over HTTP/2
	worked atomic.Uint32 // rates.Groups of the clients that got a response over HTTP/2, since turned
	_      cpu.CacheLinePad

	opts  *Options // the pool's
	conns *connections
	stats *stats

	workedBefore rates.Groups // as worked, in the period before
	turned       time.Time    // when the period of worked began
	since        time.Time    // when row began

	until time.Time     // end of the current or last demotion
	lasts time.Duration // length of the current or last demotion
	// trialUntil is when the current trial is given up; zero or in the past = there is none.
	trialUntil time.Time
	// keptUntil is when the pool may try HTTP/1 again, after HTTP/1 did not work.
	keptUntil time.Time
}

const (
	demotedFor    = 30 * time.Second
	demotedAtMost = 10 * time.Minute
	// maxViolations in a row, within violationWindow, are needed, except if a handshake violates HTTP/2. A single
	// violation may be an accident. violationWindow is also the period of demotion.worked.
	maxViolations   = 3
	violationWindow = time.Minute
	// brokenFor is how long a row of violations must have lasted, without a response over HTTP/2.
	brokenFor = 2 * time.Second
	// trialTime bounds a trial, from the start of its dial to the end of its request.
	trialTime = 5 * time.Second
)

func (d *demotion) on(now time.Time) bool { return now.Before(d.until) }

func (d *demotion) trying(now time.Time) bool { return now.Before(d.trialUntil) }

// responded records that a request of client got a response over HTTP/2. It is safe for concurrent use.
func (d *demotion) responded(client rates.Group) {
	d.row.End()
	var s rates.Groups
	s.Add(client)
	if was := d.worked.Load(); was&uint32(s) != uint32(s) { // all requests read it, so write it rarely
		d.worked.Or(uint32(s))
	}
}

// turn begins a new period of worked once the current one is over.
func (d *demotion) turn(now time.Time) {
	if now.Sub(d.turned) >= violationWindow {
		d.workedBefore, d.turned = rates.Groups(d.worked.Swap(0)), now
	}
}

// violated records a violation that a request of client met, and reports whether HTTP/2 seems not to work.
// client is rates.Ours if no request met the violation.
func (d *demotion) violated(client rates.Group, now time.Time) bool {
	if d.row.Length() == 0 || now.Sub(d.since) > violationWindow {
		d.row.End()
		d.since = now
	}
	if d.row.Failed(client) < maxViolations {
		return false
	}
	worked := rates.Groups(d.worked.Load()) | d.workedBefore
	if client == rates.Ours || worked == 0 && !d.until.IsZero() {
		return true
	}
	return now.Sub(d.since) >= brokenFor && d.row.Groups().Most(worked, 0.5, rates.ClientGroups)
}

// violatedOn is violated for an exchange on m. A violation may fail all exchanges of a connection, but counts
// once.
func (d *demotion) violatedOn(m *member, client rates.Group, now time.Time) bool {
	if m.violated {
		return false
	}
	m.violated = m.conn.CloseReason() != exchange.NotClosed
	return d.violated(client, now)
}

// possible reports whether the pool may switch to HTTP/1 and has not done so.
func (d *demotion) possible(now time.Time) bool {
	return !d.conns.closed && d.opts.Protocol == exchange.Unknown && !d.on(now) && !now.Before(d.keptUntil)
}

// demote switches the pool to HTTP/1 for a while.
func (d *demotion) demote(now time.Time) {
	d.begin(now)
	d.stats.demotions.Add(1)
	d.conns.forecast = forecast{protocol: exchange.HTTP1}
	d.conns.drainShared(exchange.ClosedError)
}

// restore ends a demotion because HTTP/1 does not work.
func (d *demotion) restore(now time.Time) {
	d.http1Failed(now)
	d.conns.forecast = forecast{}
}

func (d *demotion) begin(now time.Time) {
	d.row.End()
	d.worked.Store(0)
	d.workedBefore, d.trialUntil = 0, time.Time{}
	if d.lasts == 0 || now.Sub(d.until) > 4*d.lasts { // HTTP/2 worked for long enough
		d.lasts = demotedFor
	} else {
		d.lasts = min(2*d.lasts, demotedAtMost)
	}
	d.until = now.Add(d.lasts)
}

// http1Failed records that HTTP/1 does not work either. It ends a demotion or a trial.
func (d *demotion) http1Failed(now time.Time) {
	d.row.End()
	d.trialUntil = time.Time{}
	if d.on(now) {
		d.until = now
	}
	d.keptUntil = now.Add(demotedFor)
}
