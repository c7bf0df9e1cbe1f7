package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// growLocked starts the dials that are wanted and allowed. Where there is
// nothing to wait for, it fails those who wait. Whatever changes how many wait,
// or what they wait for, ends with it.
func (p *Pool) growLocked(now time.Time) {
	p.heldBack = false
	for !p.dead && p.wantsConnLocked() && p.dialing < p.opts.MaxDials && len(p.members)+p.dialing+p.closing < p.opts.MaxConns {
		if ok, until := p.governor.ready(now); !ok {
			p.heldBackLocked(now, until)
			break
		}
		p.startDialLocked(now)
	}
	p.settleLocked(now)
}

// wantsConnLocked reports whether one more connection, beyond those that are
// being dialled, is of use.
func (p *Pool) wantsConnLocked() bool {
	tooFew := len(p.members)-p.draining+p.dialing < min(p.opts.MinIdle, p.capLocked())
	switch p.nextLocked() {
	case upstream.Unknown: // whatever is wanted, one dial tells how to go on
		return p.dialing == 0 && (tooFew || p.queue.n > 0)
	case upstream.HTTP1:
		return tooFew || p.queue.n > p.comingLocked()
	default:
		if p.stayingLocked()+p.dialing >= p.sharedCapLocked() {
			return false
		}
		return tooFew || p.queue.n+p.aloneLocked() > p.comingLocked() || p.dialing == 0 && p.wantsSharedLocked()
	}
}

// nextLocked is what the next connection will speak, as far as can be known:
// what the last one negotiated. A peer that speaks now this, now that gets
// HTTP/1 connections once it has max_http2_conns of the others.
func (p *Pool) nextLocked() upstream.Protocol {
	if p.protocol == upstream.HTTP2 && len(p.members)-p.draining > len(p.shared) && p.stayingLocked() >= p.sharedCapLocked() {
		return upstream.HTTP1
	}
	return p.protocol
}

// stayingLocked is how many multiplexed connections lend, without those that go
// once another has come.
func (p *Pool) stayingLocked() int { return len(p.shared) - p.aging }

// comingLocked is how many places the dials under way will likely bring.
// Nothing is expected of a dial to an address that failed last time, so that
// nobody waits for that alone where another address may be dialled.
func (p *Pool) comingLocked() int { return p.swept + (p.dialing-p.onTrial)*p.perConnLocked() }

// aloneLocked is how many places those who wait need beyond one for each: who
// must be alone on a pipelined connection needs all that it has.
func (p *Pool) aloneLocked() int {
	if p.nextLocked() != upstream.HTTP1Pipelined {
		return 0
	}
	return p.queue.alone * (p.perConnLocked() - 1)
}

// coverLocked is how many of those who wait are sure to be served, as far as
// can be known, without that anybody gives a place back: while dials come
// through, by all the connections that may yet be opened, even where max_dials
// lets them come a few at a time only.
func (p *Pool) coverLocked() int {
	n := p.swept
	if p.dialing+p.closing > 0 && !p.heldBack {
		room := p.roomLocked()
		n += max(room, room*p.perConnLocked()-p.aloneLocked())
		if p.protocol == upstream.Unknown && room > 0 {
			n = max(n, p.sharedCapLocked()*p.opts.MaxStreams)
		}
	}
	return n
}

// roomLocked is how many connections there may be beyond those that are open.
func (p *Pool) roomLocked() int {
	room := p.opts.MaxConns - len(p.members)
	if p.nextLocked() == upstream.HTTP2 {
		room = min(room, p.sharedCapLocked()-len(p.shared))
	}
	return max(0, room)
}

// perConnLocked is how many places the next connection will have: as many as the
// last of its kind had, and before there was one, what the settings allow. 1
// while the protocol is unknown.
func (p *Pool) perConnLocked() int {
	n := p.opts.placesPerConn(p.nextLocked())
	if p.seenPlaces > 0 {
		n = min(n, p.seenPlaces)
	}
	if n > 1 {
		n = p.probation.limit(n)
	}
	return n
}

// capLocked is how many connections of the kind that is being opened there may
// be.
func (p *Pool) capLocked() int {
	if p.nextLocked() == upstream.HTTP2 {
		return p.sharedCapLocked()
	}
	return p.opts.MaxConns
}

// heldBackLocked is called when a connection is wanted and every address is
// left alone. If no connection is open, none is being dialled, and dials to all
// addresses failed, requests do not wait, but for those that are sent again.
func (p *Pool) heldBackLocked(now time.Time, until pause) {
	p.heldBack = p.dialing == 0
	switch {
	case p.queue.n == 0: // only the janitor asks, who comes again
	case p.hopelessLocked() && !until.alive:
		p.failLocked(func(w *waiter) error {
			switch {
			case w.resent: // the next connection is for it
				return nil
			case w.covered:
				return p.lastDial
			default:
				return p.refusal
			}
		})
	}
	if p.queue.n > 0 && !until.at.IsZero() {
		p.growAtLocked(until.at, now)
	}
}

// hopelessLocked reports whether no connection lends and none is being dialled.
func (p *Pool) hopelessLocked() bool { return p.dialing == 0 && len(p.members) == p.draining }

// dialFailedLocked is told that a dial has failed. If no address is left but those
// that failed, the requests that may outlast no more failed dials end with its
// error. The others get another dial, if an address may be dialled now.
func (p *Pool) dialFailedLocked(now time.Time) {
	if !p.hopelessLocked() || p.governor.untried() {
		return
	}
	p.failLocked(func(w *waiter) error {
		switch {
		case w.resent:
			return nil
		case w.redials > 0:
			w.redials--
			w.extend(p.opts.waitForDial(), now)
			return nil
		default:
			return p.lastDial
		}
	})
}

// growAtLocked looks again at the given time.
func (p *Pool) growAtLocked(at, now time.Time) {
	if p.retry != nil {
		if !at.Before(p.retryAt) {
			return
		}
		p.retry.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(at.Sub(now), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.retry == t {
			p.retry = nil
		}
		p.growLocked(time.Now())
	})
	p.retry, p.retryAt = t, at
}
