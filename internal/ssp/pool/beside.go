package pool

import (
	"errors"
	"time"

	"adbuffer/internal/wire/exchange"
)

// Some requests must use HTTP/1 although the pool uses HTTP/2: a request that the SSP wants over HTTP/1
// (HTTP_1_1_REQUIRED, 421), and the request of a trial; see demotion. For them the pool opens an HTTP/1
// connection beside the HTTP/2 connections, one dial at a time, within max_conns. Other requests use it
// only if no HTTP/2 connection has a place.

// openBesideLocked starts a dial that does not offer HTTP/2, unless one is under way. It returns a channel
// that is closed when the dial ends, or nil if no such dial may start now.
func (p *Pool) openBesideLocked(now time.Time) <-chan struct{} {
	if p.besideDialed != nil {
		return p.besideDialed
	}
	if ready, _ := p.governor.ready(now); !ready || !p.demotableLocked(now) || !p.growth.mayDial() {
		return nil
	}
	done := make(chan struct{})
	p.besideDialed = done
	p.governor.begin(aim{}, false)
	p.governor.shortage.dialing(now)
	m := newMember(p)
	m.beside = true
	p.opts.Lag.Start()
	p.wg.Go(func() {
		p.dial(m, aim{}, false)
		p.mu.Lock()
		p.besideDialed = nil
		p.end(time.Time{})
		close(done)
	})
	return done
}

// addBesideLocked adds m, which openBesideLocked has opened.
func (p *Pool) addBesideLocked(m *member, now time.Time) {
	if !m.exclusive() || m.ep.Barred() {
		p.conns.drain(m, exchange.ClosedDrain)
		return
	}
	m.ep.idle.push(m) // even if max_idle is 0: a request waits for it
	p.conns.trial = p.demotion.trying(now)
	if p.conns.trial {
		p.conns.due |= dueServe
	}
}

// tryHTTP1Locked begins a trial.
func (p *Pool) tryHTTP1Locked(now time.Time) {
	switch {
	case p.demotion.trying(now) || !p.demotableLocked(now):
	case p.openBesideLocked(now) != nil:
		p.demotion.trialUntil = now.Add(trialTime)
	case !p.growth.mayDial() && p.conns.closing == 0 && len(p.conns.shared.list) > 1: // max_conns are open
		p.conns.drain(p.conns.shared.emptiest(), exchange.ClosedError)
	}
}

// besideEnded records how an exchange on a connection beside HTTP/2 ended. The trial is over if the
// exchange was its request.
func (p *Pool) besideEnded(err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	if !p.demotion.trying(now) {
		return
	}
	p.demotion.trialUntil = time.Time{}
	if err == nil {
		p.demoteLocked(now)
	} else if o := exchange.AsError(err).Outcome; o == exchange.ConnLost || o == exchange.BadResponse {
		p.demotion.http1Failed(now)
	}
	p.conns.due |= dueGrow
}

// acquireHTTP1 acquires an HTTP/1 place for ex. Its error is ErrOnlyHTTP2 if the SSP offers none.
func (p *Pool) acquireHTTP1(ex *exchange.Exchange) (Place, error) {
	l, err := p.awaitHTTP1(ex)
	if errors.Is(err, errUseQueue) {
		return p.acquire(ex, ex.Times.Queued)
	}
	p.stats.arrivals.Inc()
	if err != nil {
		p.stats.refused(err, ex.Times.Queued)
		return Place{}, err
	}
	ex.Times.Acquired = time.Now()
	ex.Endpoint, ex.Peer = l.m.ep.Name, l.m.addr.AddrPort
	p.stats.acquired(reused, ex.Times.Acquired.Sub(ex.Times.Queued))
	return Place{l}, nil
}

// awaitHTTP1 waits for an HTTP/1 place for ex. Its error is errUseQueue if all places are HTTP/1.
func (p *Pool) awaitHTTP1(ex *exchange.Exchange) (*lease, error) {
	var cancelled <-chan struct{}
	if ex.Context != nil {
		cancelled = ex.Context.Done()
	}
	timer := time.NewTimer(time.Until(ex.Deadline))
	defer timer.Stop()
	for range maxBesideDials {
		l, dialed, err := p.takeHTTP1(ex, time.Now())
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-dialed:
		case <-cancelled:
			return nil, errCancelled
		case <-timer.C:
			return nil, exchange.ErrDeadlineNotSent
		}
	}
	return nil, exchange.ErrOnlyHTTP2
}

// maxBesideDials bounds the dials for which one request waits: other requests may take the connections.
const maxBesideDials = 4

// errUseQueue says that the pool uses HTTP/1 for all requests. acquireHTTP1 handles it.
var errUseQueue = errors.New("all connections use HTTP/1")

// takeHTTP1 takes an idle HTTP/1 connection. Without one it returns a channel that is closed when a dial
// for one ends.
func (p *Pool) takeHTTP1(ex *exchange.Exchange, now time.Time) (*lease, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.end(now)
	switch {
	case p.closed:
		return nil, nil, errDraining
	case p.opts.Protocol != exchange.HTTP2 && (p.opts.Protocol != exchange.Unknown || p.demotion.on(now)):
		return nil, nil, errUseQueue
	}
	for _, e := range p.conns.endpoints.all {
		if e.Barred() {
			continue
		}
		for m := p.conns.popIdle(e, true, now); m != nil; m = p.conns.popIdle(e, true, now) {
			l := p.conns.acquire(choice{m: m}, ex.Alone, now)
			if m.conn.Idle() { // a system call, but such requests are rare
				return l, nil, nil
			}
			p.releaseLocked(m, unused)
		}
	}
	if dialed := p.openBesideLocked(now); dialed != nil {
		return nil, dialed, nil
	}
	return nil, nil, exchange.ErrOnlyHTTP2
}
