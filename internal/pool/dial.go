package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// capLocked is how many connections of the protocol last negotiated there may
// be.
func (p *Pool) capLocked() int {
	if p.protocol == upstream.HTTP2 {
		return min(p.opts.MaxHTTP2Conns, p.opts.MaxConns)
	}
	return p.opts.MaxConns
}

// placesPerConn is how many places a connection of the given protocol has at
// best.
func (o *Options) placesPerConn(pr upstream.Protocol) int {
	switch pr {
	case upstream.HTTP2:
		return o.MaxStreams
	case upstream.HTTP1Pipelined:
		return o.PipelineDepth
	default:
		return 1
	}
}

// comingLocked is how many places the dials under way will bring. While one of
// them probes for the protocol that is all that the pool can have.
func (p *Pool) comingLocked() int {
	if p.probing {
		return max(p.opts.MaxConns, min(p.opts.MaxHTTP2Conns, p.opts.MaxConns)*p.opts.MaxStreams)
	}
	return p.dialing * p.opts.placesPerConn(p.protocol)
}

// growLocked starts the dials that are wanted and allowed. Where there is
// nothing to wait for, it fails those who wait.
func (p *Pool) growLocked(now time.Time) {
	for !p.dead && p.wantsConnLocked() && p.dialing < p.opts.MaxDials && len(p.members)+p.dialing < p.opts.MaxConns {
		if ok, at := p.governor.ready(now); !ok {
			p.heldBackLocked(now, at)
			return
		}
		p.startDialLocked()
	}
}

// wantsConnLocked reports whether one more connection, beyond those that are
// being dialled, is of use.
func (p *Pool) wantsConnLocked() bool {
	tooFew := len(p.members)-p.draining+p.dialing < min(p.opts.MinIdle, p.capLocked())
	if p.protocol == upstream.Unknown || p.probing {
		// Whatever is wanted, one dial tells how to go on.
		return p.dialing == 0 && (p.queue.n > 0 || tooFew)
	}
	if p.protocol == upstream.HTTP1 {
		return tooFew || p.queue.n > p.comingLocked()
	}
	if len(p.shared)+p.dialing >= p.capLocked() {
		return false
	}
	return tooFew || p.queue.n > p.comingLocked() || p.dialing == 0 && p.wantsSharedLocked()
}

// heldBackLocked is called when every address is left alone until at. If no
// connection is open and none is being dialled, waiting is in vain.
func (p *Pool) heldBackLocked(now, at time.Time) {
	if p.queue.n == 0 || p.dialing > 0 {
		return
	}
	if len(p.members) == 0 {
		p.failAllLocked(p.lastError())
		return
	}
	p.growLaterLocked(at.Sub(now))
}

// growLaterLocked looks again after d.
func (p *Pool) growLaterLocked(d time.Duration) {
	if p.retry != nil {
		return
	}
	p.retry = time.AfterFunc(max(d, time.Millisecond), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.retry = nil
		p.growLocked(time.Now())
	})
}

func (p *Pool) lastError() error {
	if p.lastDial == nil {
		return errNeverDialled
	}
	return p.lastDial
}

var errNeverDialled = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "no connection could be opened"}

func (p *Pool) startDialLocked() {
	p.dialing++
	p.stats.dialing.Add(1)
	probe := p.protocol == upstream.Unknown
	if probe {
		p.probing = true
	}
	offerHTTP2 := !p.demotion.on(time.Now())
	p.wg.Go(func() { p.dial(probe, offerHTTP2) })
}

// dial opens one connection and files it.
func (p *Pool) dial(probe, offerHTTP2 bool) {
	m := &member{pool: p}
	began := time.Now()
	addr, err := p.nextAddress()
	took := dialDurations{dns: time.Since(began)}
	var d Dialed
	if err == nil {
		d, err = p.dialer.Dial(p.ctx, addr, offerHTTP2, m)
		took.tcp, took.tls = d.TCP, d.TLS
		p.stats.dialed(took)
	}
	now := time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing--
	p.stats.dialing.Add(-1)
	if probe {
		p.probing = false
	}
	if addr != (Address{}) {
		p.governor.ended(addr, err == nil, now)
	}
	if err != nil {
		if err != errNotNow {
			p.stats.dialFailed(err)
			p.lastDial = upstream.AsError(err)
		}
		p.replace = false
		p.countBeyondLocked()
		p.growLocked(now)
		return
	}
	m.addr = addr
	m.conn, m.protocol, m.opened, m.used = d.Conn, d.Conn.Protocol(), now, now
	p.fileLocked(m, took, now)
}

// errNotNow: between the decision to dial and the dial, all addresses came to
// be left alone.
var errNotNow = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "every address backs off after failures; see pool.dial_backoff"}

// nextAddress looks the SSP up, which is fast but for once in a while, and
// takes the next address that may be dialled.
func (p *Pool) nextAddress() (Address, error) {
	addrs, err := p.dialer.Addresses(p.ctx)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.governor.lookup.note(false, now, p.opts.BackoffMin, p.opts.BackoffMax)
		return Address{}, err
	}
	p.governor.found(addrs)
	a, ok := p.governor.pick(now)
	if !ok {
		return Address{}, errNotNow
	}
	return a, nil
}

// fileLocked takes a new connection in and lends its places to those who wait.
func (p *Pool) fileLocked(m *member, took dialDurations, now time.Time) {
	p.members[m] = struct{}{}
	p.stats.opened(m.protocol)
	p.protocol, p.replace = m.protocol, false
	m.retireAt = p.retireAt(now)
	p.recountLocked(m)
	switch {
	case p.dead:
		p.retireLocked(m, upstream.ClosedDrain)
		return
	case m.conn.CloseReason() != upstream.NotClosed: // the peer was quick
		p.retireLocked(m, m.conn.CloseReason())
		p.growLocked(now)
		return
	}
	s := served{m: m, dialed: m, took: took}
	if m.exclusive() {
		if p.queue.n > 0 {
			m.fresh = true
			p.handLocked(m, now, s)
		} else {
			p.parkLocked(m)
		}
	} else {
		p.shared = append(p.shared, m)
		for p.queue.n > 0 && m.inUse < m.places {
			p.handLocked(m, now, s)
		}
	}
	p.countBeyondLocked()
	p.growLocked(now)
	p.warmedLocked()
}

// retireAt is when a connection that is opened now is too old: max_age ±10 %,
// so that connections opened together do not go together.
func (p *Pool) retireAt(now time.Time) time.Time {
	if p.opts.MaxAge <= 0 {
		return time.Time{}
	}
	return now.Add(jitter(p.opts.MaxAge, 0.1))
}
