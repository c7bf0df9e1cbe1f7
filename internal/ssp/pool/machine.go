package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
)

// machine holds the rules of a pool: which request gets which place, when to dial, and which
// connections close. It starts no goroutine, has no lock and no timer, and does no I/O. Pool calls it
// with its lock held.
//
//	event ──▶ parts ──▶ due ──▶ settle ──▶ actions ──▶ Pool
//
// An event changes the state of the parts, and notes in conns.due what that makes necessary. settle
// does that once, when the event ends. What only Pool can do is an action in do.
type machine struct {
	// Each request changes the first fields of conns. They are next to each other and apart from
	// the other fields, so that another core fetches few cache lines: see BenchmarkCores.

	conns connections
	queue queue

	opts     Options
	growth   growth
	governor governor
	demotion demotion
	learned  learnedIdle
	needs    needHistory

	stats     *stats
	newWaiter func() *waiter // returns a waiter that is not in use
	do        actions        // what the event under way has led to
	looked    time.Time      // when the janitor last called Dialer.Addresses
	// besideDialed is closed when the dial beside HTTP/2 connections ends; nil if none is under way. See
	// beside.go.
	besideDialed chan struct{}
	warm         bool // min_idle connections have been open
	closed       bool // Close was called
}

// init makes the parts of an empty pool.
func (k *machine) init(opts Options, now time.Time) {
	k.stats, k.opts = newStats(), opts
	k.conns = connections{
		opts: &k.opts, stats: k.stats, do: &k.do,
		members: make(map[*member]struct{}), forecast: forecast{protocol: opts.Protocol},
		idleRule: idleRule{opts: &k.opts, learned: &k.learned},
	}
	k.do.notEmpty = &k.conns.hasActions
	k.queue.do, k.conns.isolation.queue.do = &k.do, &k.do
	k.conns.endpoints.kept = &k.conns.kept
	k.conns.probes.endpoints = &k.conns.endpoints.Balancer
	k.conns.endpoints.Init(now)
	k.governor = newGovernor(&k.opts, &k.conns.endpoints)
	k.growth = growth{opts: &k.opts, queue: &k.queue, conns: &k.conns, governor: &k.governor}
	k.setEndpointOptions(now)
	k.queue.setFair(opts.Fair, now)
	k.needs.note(k.stats.sums(now))
	k.conns.due = 0 // a new pool dials nothing
}

// applyChange applies a change of e, which the balancer decided. If e is nil, the change concerns the
// whole SSP.
func (k *machine) applyChange(e *endpoint, c balancer.Change) {
	for _, event := range c.Events {
		if event.Ejected {
			e.stats.ejections.Add(1)
		}
	}
	if !k.closed {
		k.do.report(c.Events)
	}
	if c.Turns {
		k.applyTurns()
	}
	if c.Drain {
		k.conns.drainEndpoint(e)
	}
	if c.Turns || c.Drain {
		k.conns.due |= dueServe
	}
}

// closeEnded records that the close of a connection has ended.
func (k *machine) closeEnded() {
	k.conns.closing--
	k.conns.due |= dueGrow
}

// growDue and reviveDue record that a moment has come for which growAgain or reviveAgain asked.
func (k *machine) growDue() { k.conns.due |= dueGrow }

func (k *machine) reviveDue() { k.conns.due |= dueRevive }

func (k *machine) noteWarm() {
	if !k.warm && k.conns.serving() >= k.growth.minIdle() {
		k.warm = true
		k.do.isWarm()
	}
}

func (k *machine) startDrain() {
	k.closed = true
	if k.conns.inUse == 0 {
		k.do.isDrained()
	}
	k.failWaiters(func(*waiter) error { return errDraining })
	for _, w := range k.queue.elsewhere {
		w.elsewhere, w.queued = false, false
		k.do.answer(w, waitResult{err: errDraining})
	}
	k.queue.elsewhere = nil
	k.conns.drainFree()
}

// setOptions applies new settings.
func (k *machine) setOptions(o Options, now time.Time) {
	old := k.opts
	o.Lag = old.Lag
	k.opts = o
	if o.PipelineDepth != old.PipelineDepth || o.MaxStreams != old.MaxStreams {
		k.conns.forecast.places = 0
	}
	for m := range k.conns.members {
		if o.MaxAge != old.MaxAge {
			m.setMaxAge(o.MaxAge)
		}
		m.renew(&o, now)
	}
	k.setEndpointOptions(now)
	k.queue.setFair(o.Fair, now)
	k.conns.trim()
	k.conns.due |= dueServe
}
