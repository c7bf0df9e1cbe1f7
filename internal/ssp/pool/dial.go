package pool

import (
	"cmp"
	"context"
	"errors"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// Dialed is a new connection with the durations of its dial.
type Dialed struct {
	Conn     exchange.Conn
	TCP, TLS time.Duration // TLS is 0 on cleartext
	// At says which address Conn leads to, or the error of Dial is about: 0 is addr, 1 is the first of
	// others. Lost holds the errors of the other addresses by that index, or is nil.
	At   int
	Lost []error
}

// Dialer finds an SSP and connects to it. Its methods are safe for concurrent use and return soon
// after ctx ends. Their errors are *exchange.Error with Progress NotSent.
type Dialer interface {
	// Addresses returns the addresses of all endpoints. Dials to an endpoint use its addresses in
	// turn, in this order. It is fast if it was called a short time ago, and otherwise
	// bounds its own time. The slice must not be changed, and stays the same while its contents do.
	Addresses(ctx context.Context) ([]exchange.Address, error)
	// Dial connects to addr or, if that fails or is slow, to one of others, which belong to the
	// same endpoint. It offers HTTP/2 only if offerHTTP2; Dialed.Conn.Protocol returns the
	// negotiated protocol. The connection calls owner when the number of its places changes,
	// perhaps before Dial returns. ctx ends when the time for a dial is over. Dial sets all of
	// Dialed except Conn even if it fails.
	Dial(ctx context.Context, addr exchange.Address, others []exchange.Address, offerHTTP2 bool, owner exchange.Owner) (Dialed, error)
}

// dialDurations holds how long the parts of a dial took.
type dialDurations struct{ dns, tcp, tls time.Duration }

// startDialLocked starts a dial.
func (p *Pool) startDialLocked(to aim, now time.Time) {
	offerHTTP2 := p.offersHTTP2Locked(to, now)
	p.governor.begin(to, offerHTTP2)
	p.governor.shortage.dialing(now)
	m := newMember(p)
	if m.single = to.isolated; to.isolated {
		p.conns.isolation.dialing++
	}
	p.opts.Lag.Start()
	p.wg.Go(func() { p.dial(m, to, offerHTTP2) })
}

// offersHTTP2Locked reports whether the next dial may become HTTP/2. If the SSP may choose, the
// pool offers HTTP/2 on at most as many dials as it may have HTTP/2 connections. So an SSP that
// chooses HTTP/2 only sometimes stays within max_http2_conns, and no handshake is wasted. An endpoint
// without a connection gets one beyond the limit if another endpoint can lose one. The limit does not apply
// to connections for isolated requests.
func (p *Pool) offersHTTP2Locked(to aim, now time.Time) bool {
	switch shared := &p.conns.shared; p.opts.Protocol {
	case exchange.HTTP2:
		return true
	case exchange.Unknown:
		return !p.demotion.on(now) &&
			(to.isolated || shared.staying()+p.governor.offering < p.conns.sharedLimit() || to.endpoint != nil && to.endpoint.open == 0 && shared.spare() != nil)
	default:
		return false
	}
}

// dial opens m's connection and adds it to the pool.
func (p *Pool) dial(m *member, want aim, offerHTTP2 bool) {
	to, took, err := p.nextAddress(want)
	var lost []error
	reached := to
	if err == nil {
		var d Dialed
		d, err = p.connect(m, to, offerHTTP2)
		took.tcp, took.tls, lost, reached = d.TCP, d.TLS, d.Lost, to.nth(d.At)
		m.addr, m.ep = reached.addr, to.endpoint
		p.stats.dialed(took)
	}
	now := time.Now()

	p.mu.Lock()
	defer p.end(now)
	p.opts.Lag.Stop()
	p.conns.due |= dueGrow | dueElsewhere
	p.governor.ended(to, want, offerHTTP2)
	if want.isolated {
		p.conns.isolation.dialing--
	}
	p.lostRaceLocked(to, lost, now)
	switch {
	case err == nil:
		if m.conn.CloseReason() == exchange.NotClosed {
			p.governor.connected(reached, now)
		} else if !m.beside {
			p.governor.failed(reached, nil, p.queue.outlasts(), now)
		}
		p.addLocked(m, want, took, now)
	case p.closed, errors.Is(err, errNotNow), errors.Is(err, lag.ErrTooMuch):
	case m.beside && !isLocal(err):
		if to.endpoint != nil {
			to.endpoint.stats.dialFailed(err)
		}
		p.demotion.http1Failed(now)
	case !offerHTTP2 && p.demotion.on(now) && errors.Is(err, exchange.ErrALPN): // the SSP speaks only HTTP/2
		p.noteDialErrorLocked(to.endpoint, err)
		p.restoreLocked(now)
	case offerHTTP2 && exchange.AsError(err).BlamesHTTP2() && p.demotableLocked(now): // the address may work over HTTP/1
		p.noteDialErrorLocked(to.endpoint, err)
		p.demoteLocked(now)
	default:
		p.conns.due |= dueFail
		p.governor.failed(reached, err, p.queue.outlasts(), now)
		p.noteDialErrorLocked(to.endpoint, err)
		p.conns.shared.replace = false
		if to.endpoint != nil && !isLocal(err) {
			p.applyLocked(to.endpoint, p.conns.endpoints.DialFailed(to.endpoint.Endpoint, now))
		}
	}
	if e := cmp.Or(to.endpoint, want.endpoint); e != nil {
		p.dialEndedLocked(e, err, now)
	}
}

// nextAddress looks the SSP up and picks the next address to dial. The look-up is usually fast.
func (p *Pool) nextAddress(want aim) (to target, took dialDurations, err error) {
	p.mu.Lock()
	failures := p.governor.lookup.failures
	p.mu.Unlock()
	began := time.Now()
	addrs, err := p.dialer.Addresses(p.ctx)
	now := time.Now()
	took.dns = now.Sub(began)

	p.mu.Lock()
	defer p.end(now)
	switch {
	case p.closed:
		p.governor.undecided--
		return to, took, errDraining
	case err == nil && len(addrs) == 0:
		err = errNoAddress
	}
	p.governor.lookedUp(addrs, err, failures, now)
	if err != nil {
		return to, took, err
	}
	to, ok := p.governor.pick(now, p.growth.mayTry(), want)
	if !ok {
		return to, took, errNotNow
	}
	if to.onTrial {
		p.conns.due |= dueGrow // another address may be healthy
	}
	return to, took, nil
}

// dialGrace is how long the pool waits beyond the dialer's own timeouts. The dialer's error names
// the step that took too long.
const dialGrace = 10 * time.Millisecond

// connect dials to and stores the connection in m.
func (p *Pool) connect(m *member, to target, offerHTTP2 bool) (Dialed, error) {
	o := p.Options()
	ctx, cancel := o.Lag.WithTimeout(p.ctx, o.dialLimit()+dialGrace)
	defer cancel()
	d, err := p.dialer.Dial(ctx, to.addr, to.others, offerHTTP2, m)
	if err == nil {
		m.conn, m.protocol = d.Conn, d.Conn.Protocol()
		m.single = m.single && m.protocol == exchange.HTTP2
	}
	return d, err
}

// lostRaceLocked records the addresses of a dial that failed or were slow while another one was
// reached. They do not count as failures of the endpoint.
func (p *Pool) lostRaceLocked(to target, lost []error, now time.Time) {
	for i, err := range lost {
		if err != nil && !errors.Is(err, lag.ErrTooMuch) {
			to.endpoint.stats.dialFailed(err)
			p.governor.failed(to.nth(i), err, false, now)
		}
	}
}

// addLocked adds a new connection, whose dial had the given aim, and gives its places to waiters.
func (p *Pool) addLocked(m *member, to aim, took dialDurations, now time.Time) {
	p.conns.add(m, now)
	switch {
	case p.unneededLocked(m.ep):
		p.conns.drain(m, exchange.ClosedDrain)
		return
	case m.conn.CloseReason() != exchange.NotClosed:
		p.conns.drain(m, m.conn.CloseReason())
		p.closedAtOnceLocked(m, now)
		p.conns.due |= dueFail
		return
	case m.protocol == exchange.HTTP2 && p.opts.Protocol == exchange.Unknown && p.demotion.on(now):
		p.conns.drain(m, exchange.ClosedError) // the dial began before the demotion
		return
	}
	m.ep.dialError = nil
	p.conns.serve(m)
	if m.beside {
		p.addBesideLocked(m, now)
		return
	}
	if m.ep.open == 1 && m.ep.Active() {
		p.drainInactiveLocked()
	}
	r := waitResult{dialed: true, took: took}
	before := p.queue.n + p.conns.isolation.queue.n
	switch {
	case m.ep.Probe() == balancer.ProbeDials:
		p.probeOnLocked(m, r, now)
	case m.ep.Barred() && !m.exclusive():
		p.conns.drain(m, exchange.ClosedDrain)
	case !m.exclusive():
		p.giveElsewhereLocked(m, r, now)
		for p.queue.n > 0 && m.takes(p.queue.first().alone) {
			p.giveLocked(choice{m: m}, r, now)
		}
		p.conns.expireShared(now) // an old connection may have waited for this one
	case !to.isolated && p.queue.elsewhere != nil && p.giveElsewhereLocked(m, r, now):
	default:
		if q, isolated := p.nextFor(m); q.n > 0 && !m.ep.Barred() {
			m.fresh = true
			p.giveLocked(choice{m: m, isolated: isolated}, r, now)
		} else {
			p.reuseLocked(m)
		}
	}
	turns := 0
	if to.waiting {
		turns = 1
	}
	p.conns.endpoints.Served(m.ep.Endpoint, before-p.queue.n-p.conns.isolation.queue.n, turns)
	p.noteWarmLocked()
}

// probeOnLocked makes the next request on m the probe of its ejected endpoint.
func (p *Pool) probeOnLocked(m *member, r waitResult, now time.Time) {
	if p.queue.n > 0 && (m.exclusive() || m.takes(p.queue.first().alone)) {
		p.conns.endpoints.SetProbe(m.ep.Endpoint, balancer.ProbeSent, now)
		m.fresh = m.exclusive()
		p.giveLocked(choice{m: m, probe: true}, r, now)
		return
	}
	if m.exclusive() {
		m.ep.idle.push(m) // even if max_idle is 0
	}
	p.conns.endpoints.SetProbe(m.ep.Endpoint, balancer.ProbeReady, now)
}

// closedAtOnceLocked records that the SSP closed m before any use, and treats it like a failed
// dial. If m was an HTTP/2 connection, the SSP may not support HTTP/2. If m is an HTTP/1 connection of a
// demotion, the SSP may support only HTTP/2.
func (p *Pool) closedAtOnceLocked(m *member, now time.Time) {
	p.noteDialErrorLocked(m.ep, exchange.Errorf(exchange.ConnectFailed, exchange.NotSent, "%v: the SSP closed the new connection at once", m.addr))
	switch {
	case m.beside:
		p.demotion.http1Failed(now)
	case m.protocol == exchange.HTTP1 && p.opts.Protocol == exchange.Unknown && p.demotion.on(now):
		p.restoreLocked(now)
	case m.protocol == exchange.HTTP2 && p.demotableLocked(now) && p.demotion.violated(rates.Ours, now):
		p.demoteLocked(now)
	}
}

// noteDialErrorLocked counts the error of a dial to e. If e is nil, it counts the error of a
// look-up.
func (p *Pool) noteDialErrorLocked(e *endpoint, err error) {
	if e == nil {
		e = p.conns.endpoints.lookedUpFor(err)
	}
	e.stats.dialFailed(err)
	e.dialError = err
	p.governor.failedWith(err)
}

// localProbePause is the pause before the next dial for a probe, after one that failed because of
// adbuffer's machine. No request waits for it.
const localProbePause = time.Second

// dialEndedLocked records that a dial to e ended, with or without a connection.
func (p *Pool) dialEndedLocked(e *endpoint, err error, now time.Time) {
	p.reachLocked(e, now)
	if e.Probe() != balancer.ProbeDials {
		return
	}
	// The dial brought no connection for the probe.
	if isLocal(err) {
		p.conns.endpoints.ProbeLater(e.Endpoint, now.Add(localProbePause))
	} else {
		p.conns.endpoints.ProbeFailed(e.Endpoint)
	}
	p.conns.due |= dueRevive
}

// reachLocked records whether e is reachable: a connection to it is open, or the last dial to one
// of its addresses succeeded.
func (p *Pool) reachLocked(e *endpoint, now time.Time) {
	unreachable := e.open == 0 && p.governor.allFailed(e)
	if p.conns.endpoints.SetUnreachable(e.Endpoint, unreachable, now).Turns {
		p.applyTurnsLocked()
	} else if unreachable {
		p.conns.due |= dueRevive
	}
}
