package pool

import (
	"slices"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/sizer"
	"adbuffer/internal/wire/exchange"
)

// machine holds the rules of a pool: which request gets which place, when to dial, and which
// connections close. It starts no goroutine, has no lock and no timer, and does no I/O. Time is an input: an event
// brings it, or the machine asks conns.clock. Pool calls it with its lock held.
//
//	event ──▶ parts ──▶ due ──▶ settle ──▶ actions ──▶ Pool
//
// An event changes the state of the parts, and notes in conns.due what that makes necessary. settle
// does that once, when the event ends. What only Pool can do is an action in do. The parts own the state, each in
// the file of its name; ARCHITECTURE.md lists them.
type machine struct {
	// Each request changes the first fields of conns. They are next to each other and apart from
	// the other fields, so that another core fetches few cache lines: see BenchmarkCores.

	conns connections
	queue queue
	size  size

	// Each part uses only parts above it.

	opts       Options
	isolation  isolation
	governor   governor
	learned    learnedIdle
	demotion   demotion
	growth     growth
	pruner     pruner
	dials      dials
	probes     prober
	lender     lender
	dispatcher dispatcher
	beside     http1Beside
	elsewhere  elsewhere
	changes    endpointChanges
	needs      needHistory

	stats     *stats
	newWaiter func() *waiter // returns a waiter that is not in use
	do        actions        // what the event under way has led to
}

// init makes the parts of an empty pool.
func (k *machine) init(opts Options, clock func() time.Time) {
	k.stats, k.opts = newStats(), opts
	now := clock()
	o, do, c := &k.opts, &k.do, &k.conns
	*c = connections{
		opts: o, stats: k.stats, do: do, clock: clock, members: make(map[*member]struct{}),
		forecast: forecast{protocol: opts.Protocol}, idleRule: idleRule{opts: o, learned: &k.learned},
	}
	do.notEmpty = &c.hasActions
	c.endpoints.kept = &c.kept
	c.endpoints.Init(now)
	k.queue.do, k.isolation.queue.do = do, do
	k.size = size{opts: o, conns: c}
	k.governor = newGovernor(o, &c.endpoints)
	k.demotion.opts, k.demotion.conns, k.demotion.stats = o, c, k.stats
	k.growth = growth{opts: o, queue: &k.queue, isolation: &k.isolation, conns: c, size: &k.size, governor: &k.governor}
	k.pruner = pruner{conns: c, size: &k.size, growth: &k.growth, governor: &k.governor}
	k.dials = dials{opts: o, conns: c, size: &k.size, growth: &k.growth, governor: &k.governor, demotion: &k.demotion, isolation: &k.isolation, pruner: &k.pruner, do: do}
	k.probes = prober{opts: o, endpoints: &c.endpoints.Balancer, dials: &k.dials, do: do}
	k.lender = lender{conns: c, size: &k.size, probes: &k.probes}
	k.dispatcher = dispatcher{conns: c, size: &k.size, lender: &k.lender, queue: &k.queue, isolation: &k.isolation, do: do}
	k.beside = http1Beside{conns: c, lender: &k.lender, growth: &k.growth, governor: &k.governor, demotion: &k.demotion, dials: &k.dials}
	k.elsewhere = elsewhere{opts: o, conns: c, size: &k.size, lender: &k.lender, dispatcher: &k.dispatcher, queue: &k.queue, dials: &k.dials, newWaiter: k.newWaiter, do: do}
	k.changes = endpointChanges{opts: o, conns: c, size: &k.size, growth: &k.growth, governor: &k.governor, dials: &k.dials, pruner: &k.pruner, do: do}
	k.changes.setOptions(now)
	k.queue.setFair(opts.Fair, now)
	k.needs.note(k.stats.sums(now))
	c.due = 0 // a new pool dials nothing
}

// closeEnded records that the close of a connection has ended.
func (k *machine) closeEnded() {
	k.conns.closing--
	k.conns.due |= dueGrow
	if k.pruner.roomMade() {
		k.conns.due |= dueRevive | dueRoom
	}
}

// growDue records that the time has come for which actions.growAgain set an alarm: the pool may dial again.
func (k *machine) growDue() { k.conns.due |= dueGrow }

// reviveDue records the same of actions.reviveAgain: an endpoint may be due for a dial or a probe.
func (k *machine) reviveDue() { k.conns.due |= dueRevive }

func (k *machine) startClose() {
	k.conns.closed = true
	if k.conns.inUse == 0 {
		k.do.isEmptied()
	}
	k.dispatcher.fail(func(*waiter) error { return errDraining })
	k.elsewhere.fail(errDraining)
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
	k.changes.setOptions(now)
	k.queue.setFair(o.Fair, now)
	k.pruner.trim()
	k.conns.due |= dueServe
}

// sizerInput is what the sizer needs to know about the pool: a sample without Releases and Held, which need no lock,
// and the settings of the size.
type sizerInput struct {
	sample  sizer.Sample
	auto    AutoSize
	limits  sizer.Limits
	perConn int // places of a connection
	least   int // connections that the pool needs, however small it makes itself
}

// sizerInput answers the sizer. heldBack says that something other than the pool's size holds requests back.
func (k *machine) sizerInput(heldBack bool) sizerInput {
	all, perConn, auto := k.conns.endpoints.all, max(1, k.size.perConn()), k.opts.Auto
	allEjected := !slices.ContainsFunc(all, func(e *endpoint) bool { return !e.Ejected() })
	return sizerInput{
		sample: sizer.Sample{
			Arrivals: k.stats.arrivals.Load(), Waits: k.stats.limitWaits.Load(), Successes: k.stats.successes.Load(),
			InUse: k.conns.inUse + k.governor.dialing*perConn, Frozen: heldBack || allEjected,
		},
		auto: auto, perConn: perConn,
		limits: sizer.Limits{Min: auto.MinConns, Max: k.size.limitOf(k.opts.MaxConns) * perConn, DryRun: auto.DryRun},
		least:  max(k.opts.MinIdle, len(all)), // each endpoint needs a connection to get its share, and min_idle stays in force
	}
}

// resize sets how many connections may be open; 0 means as many as are configured. closeAbove is the
// number above which open connections close as soon as no place of them is in use; 0 changes nothing.
func (k *machine) resize(conns, closeAbove int) {
	z := &k.size
	grown := conns == 0 && z.chosen > 0 || conns > z.chosen && z.chosen > 0
	if conns == z.chosen && closeAbove == 0 || k.conns.closed {
		return
	}
	z.chosen = conns
	switch {
	case closeAbove > 0:
		z.closeAbove = closeAbove
		k.pruner.trim()
	case grown:
		z.closeAbove = 0
		k.conns.due |= dueGrow
	}
}

// take takes a free place. If no place is free, it puts ex into the queue. again says that ex
// had a place on a stale connection.
func (k *machine) take(ex *exchange.Exchange, again bool, now time.Time) (*lease, *waiter, error) {
	if k.conns.closed {
		return nil, nil, errDraining
	}
	isolated := ex.Isolated && k.opts.isolates()
	q := k.dispatcher.queueOf(isolated)
	var to choice
	w := wish{avoid: ex.Avoid, alone: ex.Alone || ex.Isolated, resent: ex.Resent, isolated: isolated}
	if ex.Refused && !isolated {
		if l, waits, err := k.elsewhere.take(ex, w, now); l != nil || waits != nil || err != nil {
			return l, waits, err
		}
	}
	if q.n == 0 && (!isolated || k.size.mayIsolate()) { // otherwise waiting requests come first
		to = k.lender.pick(w, now)
	}
	if to.m == nil {
		if q.needsKey(ex) {
			return nil, nil, errNoKey
		}
		w, err := k.enqueue(ex, isolated, again)
		return nil, w, err
	}
	l := k.lender.acquire(to, ex.Alone || ex.Isolated, now)
	if to.passedOver != nil && !isolated {
		k.dials.forPassedOver(to.passedOver, now)
	}
	if !to.m.exclusive() {
		k.conns.due |= dueGrow // half of the places may be in use now
	}
	return l, nil, nil
}

// giveBack takes back a place of m that was in use for held. The place goes to a waiter, or m becomes idle
// or closes. It reads the clock only if it must: most exclusive connections become idle without it.
func (k *machine) giveBack(m *member, held time.Duration) {
	k.lender.release(m, held)
	if k.conns.closed && k.conns.inUse == 0 {
		k.do.isEmptied()
	}
	switch {
	case m.conn.CloseReason() != exchange.NotClosed:
		k.drainClosed(m, k.conns.clock())
		k.conns.due |= dueGrow
	case m.draining:
		k.conns.drain(m, m.why)
		k.conns.due |= dueGrow
	default:
		if m.allowed > 0 && held != unused {
			k.conns.probation.earn(m)
		}
		k.conns.recount(m)
		if m.exclusive() {
			k.reuse(m)
		} else if k.queue.n > 0 || k.elsewhere.waiters != nil {
			k.conns.due |= dueServe
		}
	}
}

// reuse gives an exclusive connection to the first waiter, or makes it idle.
func (k *machine) reuse(m *member) {
	q, isolated := k.dispatcher.nextFor(m)
	switch {
	case m.single && k.queue.n > 0 && !isolated && k.growth.full() && !k.growth.sharedFull():
		k.conns.drain(m, exchange.ClosedDrain) // to make room for a connection with more places
		k.conns.due |= dueGrow
	case m.single && k.demotion.on(k.conns.clock()):
		k.conns.drain(m, exchange.ClosedError)
		k.conns.due |= dueGrow
	case k.unneeded(m.ep):
		k.conns.drain(m, exchange.ClosedDrain)
	case q.n > 0 && !m.ep.Barred():
		now := k.conns.clock()
		k.conns.due |= dueGrow
		if why := k.conns.idleRule.expired(m, now); why != exchange.NotClosed {
			k.conns.drain(m, why)
			return
		}
		if k.pruner.mustMakeRoom(m, now) {
			k.conns.drain(m, exchange.ClosedDrain)
			return
		}
		k.dispatcher.give(choice{m: m, isolated: isolated}, waitResult{}, now)
		k.conns.endpoints.Served(m.ep.Endpoint, 1, 0)
	default:
		k.conns.keep(m)
		if k.elsewhere.waiters != nil {
			k.conns.due |= dueServe
		}
		if k.queue.n+k.isolation.queue.n > 0 { // the waiters cannot use this connection
			k.conns.due |= dueGrow
		}
	}
}

// unneeded reports whether a connection to e must close as soon as no place of it is in use.
func (k *machine) unneeded(e *endpoint) bool {
	return k.conns.closed || k.size.surplus() > 0 || e.Unneeded() || k.queue.n == 0 && k.conns.endpoints.disabled(e)
}

// drainClosed drains m, whose connection accepts no more requests.
func (k *machine) drainClosed(m *member, now time.Time) {
	atOnce := m.requests == 0 && !m.draining && now.Sub(m.opened) < k.opts.BackoffMin
	k.conns.drain(m, m.conn.CloseReason())
	if m.ep.open == 0 {
		k.changes.updateReachable(m.ep, now)
	}
	if m.beside {
		if m.requests == 0 && k.demotion.trying(now) {
			k.demotion.http1Failed(now)
		}
		return
	}
	if atOnce { // otherwise the pool would dial again and again without a pause
		k.governor.endedUnprocessed(m.addr, now)
		k.closedAtOnce(m, now)
	}
}

// enqueue puts ex into its queue. again says that ex had a place on a stale connection.
func (k *machine) enqueue(ex *exchange.Exchange, isolated, again bool) (*waiter, error) {
	now := k.conns.clock() // Times.Queued may be much earlier
	if !now.Before(ex.Deadline) {
		return nil, exchange.ErrDeadlineNotSent
	}
	w := k.newWaiter()
	w.begin(ex, again, &k.opts, now)
	w.isolated = isolated
	k.dispatcher.queueOf(isolated).push(w, now)
	k.do.wake(w, w.until(now))
	k.conns.due |= dueGrow
	return w, nil
}

// settleWait settles the arrival of w, a new waiter, and counts w if it waits because of a limit.
func (k *machine) settleWait(w *waiter, now time.Time) {
	k.settle(now)
	if !w.inElsewhere && w.pending && !w.isolated && k.growth.atLimit() {
		k.stats.limitWaits.Add(1)
	}
}

// checkWait ends the wait of w, which still waits, if err is not nil, which says that the request gave up, or if
// its time is over. It returns why, or nil if w waits on.
func (k *machine) checkWait(w *waiter, err error, now time.Time) error {
	if err == nil && w.inElsewhere {
		k.elsewhere.end(w, now)
		return nil
	}
	if err == nil {
		err = w.overdue(&k.opts, k.size.placeSettingsFor(w), k.pauseCause(), now)
	}
	switch {
	case err == nil:
		k.do.wake(w, w.until(now))
		return nil
	case w.inElsewhere:
		k.elsewhere.leave(w)
	default:
		k.dispatcher.queueOf(w.isolated).remove(w)
	}
	k.conns.due |= dueGrow
	return err
}

func (k *machine) full() queueFull {
	return queueFull{
		load: k.size.load(), conns: len(k.conns.members) + k.governor.dialing, connsLimit: k.size.limit(),
		pending: k.queue.pending, maximum: k.opts.MaxPending, settings: k.size.placeSettings(), fair: k.queue.fair != nil,
		cause: k.pauseCause(),
	}
}

// pauseCause returns why the pool opens no connection, or nil if nothing prevents it.
func (k *machine) pauseCause() error {
	if k.growth.paused {
		return k.governor.lastError
	}
	return nil
}

// dropChecked drops a checked connection if it is closed or not needed, and reports whether it
// did.
func (k *machine) dropChecked(m *member, now time.Time) (dropped bool) {
	switch {
	case m.draining: // drained during the check
	case m.conn.CloseReason() != exchange.NotClosed:
		k.learned.sweptClosed(m, now.Sub(m.used))
		k.drainClosed(m, now)
	case k.unneeded(m.ep):
		k.conns.drain(m, exchange.ClosedDrain)
	default:
		return false
	}
	return true
}

// connChanged records that m offers another number of places, or has closed.
func (k *machine) connChanged(m *member, now time.Time) {
	if _, open := k.conns.members[m]; !open {
		return // not added yet, or removed; add checks a new connection itself
	}
	k.conns.due |= dueServe
	if m.conn.CloseReason() == exchange.NotClosed {
		k.conns.recount(m)
		return
	}
	m.ep.idle.remove(m)
	if m.inUse == 0 && !m.draining {
		k.learned.closed(m, now.Sub(m.used))
	}
	k.drainClosed(m, now)
}

// avoidRefusing is how long requests prefer other connections after one has refused a request.
const avoidRefusing = 100 * time.Millisecond

// exchangeFailed records an error of an exchange on m, for a client, that says something about the SSP.
func (k *machine) exchangeFailed(m *member, e *exchange.Error, client rates.Group, now time.Time) {
	if e.BlamesHTTP2() && k.demotion.possible(now) && k.demotion.violatedOn(m, client, now) {
		k.beside.try(now)
	}
	if e.Progress == exchange.NotProcessed && !e.Unsent {
		m.avoidUntil = now.Add(avoidRefusing)
	}
	if e.Progress == exchange.NotProcessed && !m.exclusive() && k.conns.probation.refused(m, now) {
		k.governor.endedUnprocessed(m.addr, now)
	}
}

// foundClosed takes back the place of ex, whose connection the SSP had closed before ex was sent.
func (k *machine) foundClosed(l *lease, ex *exchange.Exchange, now time.Time) {
	k.learned.foundClosed(l.m, now)
	if l.probe {
		k.probes.notSent(l.m.ep, now)
	}
	k.queue.repay(ex.Ticket, unused)
	ex.Ticket = 0
	k.giveBack(l.m, unused)
}

// probeOver records how the request that was the probe of m's endpoint ended.
func (k *machine) probeOver(m *member, result exchange.Result, now time.Time) {
	k.changes.apply(m.ep, k.probes.ended(m.ep, result, now))
	k.conns.due |= dueRevive
}
