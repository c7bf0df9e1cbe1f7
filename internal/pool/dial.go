package pool

import (
	"context"
	"errors"
	"time"

	"adbuffer/internal/upstream"
)

func (p *Pool) startDialLocked(now time.Time) {
	offer := p.offersHTTP2Locked(now)
	p.dialing++
	if offer {
		p.offering++
	}
	p.governor.undecided++
	edition := p.opts.Edition
	p.wg.Go(func() { p.dial(offer, edition) })
}

// offersHTTP2Locked reports whether the next dial may become HTTP/2. Where the
// peer may choose, no more dials offer it than there may be connections, so
// that a peer that chooses now this, now that cannot pass max_http2_conns, and
// no handshake is wasted.
func (p *Pool) offersHTTP2Locked(now time.Time) bool {
	switch p.opts.Protocol {
	case upstream.HTTP2:
		return true
	case upstream.Unknown:
		return !p.demotion.on(now) && p.stayingLocked()+p.offering < p.sharedCapLocked()
	default:
		return false
	}
}

// dial opens one connection and files it.
func (p *Pool) dial(offerHTTP2 bool, edition int) {
	m := &member{pool: p, edition: edition}
	to, took, err := p.nextAddress()
	if err == nil {
		m.addr = to.addr
		took.tcp, took.tls, err = p.connect(m, offerHTTP2)
		p.stats.dialed(took)
	}
	now := time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing--
	if offerHTTP2 {
		p.offering--
	}
	if to.onTrial {
		p.onTrial--
	}
	switch {
	case err == nil:
		m.opened, m.used = now, now
		p.governor.ended(to, now, m.conn.CloseReason() == upstream.NotClosed)
		p.fileLocked(m, took, now)
	case p.dead || errors.Is(err, errNotNow):
		p.governor.calledOff(to)
	case offerHTTP2 && refusesHTTP2(err) && p.demotableLocked():
		p.governor.calledOff(to) // the address is well, if it is spoken to in HTTP/1
		p.noteFailureLocked(err)
		p.demoteLocked(now)
	default:
		p.governor.ended(to, now, false)
		p.noteFailureLocked(err)
		p.replace = false
		p.dialFailedLocked(now)
	}
	p.growLocked(now)
}

// nextAddress looks the SSP up, which is fast but for once in a while, and
// takes the next address that may be dialled.
func (p *Pool) nextAddress() (to target, took dialDurations, err error) {
	p.mu.Lock()
	failures := p.governor.lookup.failures
	p.mu.Unlock()
	began := time.Now()
	addrs, err := p.dialer.Addresses(p.ctx)
	now := time.Now()
	took.dns = now.Sub(began)
	if err == nil && len(addrs) == 0 {
		err = errNoAddress
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.governor.undecided--
	if err != nil {
		if !p.dead {
			p.governor.lookedUp(nil, failures, now)
		}
		return to, took, err
	}
	p.governor.lookedUp(addrs, failures, now)
	to, ok := p.governor.pick(now, p.mayTryLocked())
	if !ok {
		return to, took, errNotNow
	}
	if to.onTrial {
		p.onTrial++
		p.growLocked(now) // another address may be the better bet
	}
	return to, took, nil
}

// mayTryLocked reports whether a dial may go to an address that failed last
// time, although another would be the better bet: while it hangs, there must be
// a connection to use, or another may be opened.
func (p *Pool) mayTryLocked() bool {
	room := p.dialing < p.opts.MaxDials && len(p.members)+p.dialing+p.closing < p.opts.MaxConns
	return p.protocol != upstream.Unknown && (room || len(p.members) > p.draining)
}

// dialerFirst is how much later than the dialer, who can say which of its steps
// took too long, the pool ends a dial.
const dialerFirst = 10 * time.Millisecond

// connect dials m.addr, and makes the connection m's.
func (p *Pool) connect(m *member, offerHTTP2 bool) (tcp, tls time.Duration, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.dialLimit()+dialerFirst)
	defer cancel()
	d, err := p.dialer.Dial(ctx, m.addr, offerHTTP2, m)
	if err == nil {
		m.conn, m.protocol = d.Conn, d.Conn.Protocol()
	}
	return d.TCP, d.TLS, err
}

func (p *Pool) dialLimit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opts.dialLimit()
}

// fileLocked takes a new connection in and lends its places to those who wait.
func (p *Pool) fileLocked(m *member, took dialDurations, now time.Time) {
	p.members[m] = struct{}{}
	p.stats.opened(m.protocol)
	p.replace = false
	m.retireAt = p.retireAt(now)
	p.renewLocked(m, now)
	switch {
	case p.dead || p.surplusLocked() > 0:
		p.retireLocked(m, upstream.ClosedDrain)
		return
	case m.conn.CloseReason() != upstream.NotClosed:
		p.retireLocked(m, m.conn.CloseReason())
		p.shutAtOnceLocked(m, now)
		p.dialFailedLocked(now)
		return
	case m.protocol == upstream.HTTP2 && p.opts.Protocol == upstream.Unknown && p.demotion.on(now):
		p.retireLocked(m, upstream.ClosedError) // dialled before the peer was demoted
		return
	}
	if p.protocol != m.protocol {
		p.protocol, p.seenPlaces = m.protocol, 0
	}
	if !m.exclusive() {
		m.allowed = p.probation.places
	}
	p.recountLocked(m)
	s := served{dialed: true, took: took}
	switch {
	case !m.exclusive():
		p.shared = append(p.shared, m)
		for p.queue.n > 0 && m.takes(p.queue.head.alone) {
			p.handLocked(m, now, s)
		}
		p.ageSharedLocked(now) // one may have waited for this
	case p.queue.n > 0:
		m.fresh = true
		p.handLocked(m, now, s)
	default:
		p.parkLocked(m)
	}
	p.warmedLocked()
}

// retireAt is when a connection that was opened then is too old: max_age ±10 %,
// so that connections opened together do not go together.
func (p *Pool) retireAt(opened time.Time) time.Time {
	if p.opts.MaxAge <= 0 {
		return time.Time{}
	}
	return opened.Add(jitter(p.opts.MaxAge, 0.1))
}

func (p *Pool) noteFailureLocked(err error) {
	p.stats.dialFailed(err)
	p.lastDial = upstream.AsError(err)
	p.refusal = &upstream.Error{
		Outcome: upstream.ConnectFailed, Progress: upstream.NotSent,
		Detail: "every address backs off after failures; see pool.dial_backoff", Err: p.lastDial,
	}
	if p.lastDial.Outcome == upstream.TLSFailed {
		p.refusal.Outcome = upstream.TLSFailed
	}
}

// shutAtOnceLocked is told of a connection that the peer closed before it was of
// any use: as good as a dial that failed. If it had become HTTP/2, that may be
// what the peer dislikes.
func (p *Pool) shutAtOnceLocked(m *member, now time.Time) {
	p.noteFailureLocked(&upstream.Error{
		Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: m.addr.String() + ": the peer closed the new connection at once",
	})
	if m.protocol == upstream.HTTP2 && p.demotableLocked() && p.demotion.fault(now) {
		p.demoteLocked(now)
	}
}

// refusesHTTP2 reports whether a dial failed since HTTP/2 was offered.
func refusesHTTP2(err error) bool {
	var e *upstream.Error
	return errors.As(err, &e) && (e.RefusesHTTP2 || e.Demote)
}

var (
	errNoAddress = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "the look-up found no address"}
	// errNotNow: between the decision to dial and the dial, all addresses came
	// to be left alone. It fails nobody.
	errNotNow = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "every address backs off after failures; see pool.dial_backoff"}
)
