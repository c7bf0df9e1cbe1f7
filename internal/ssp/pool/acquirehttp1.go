package pool

import (
	"errors"
	"time"

	"adbuffer/internal/wire/exchange"
)

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

// takeHTTP1 takes an idle HTTP/1 connection. Without one it returns a channel that is closed when a dial
// for one ends.
func (p *Pool) takeHTTP1(ex *exchange.Exchange, now time.Time) (*lease, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.end(now)
	switch {
	case p.conns.closed:
		return nil, nil, errDraining
	case p.opts.Protocol != exchange.HTTP2 && (p.opts.Protocol != exchange.Unknown || p.demotion.on(now)):
		return nil, nil, errUseQueue
	}
	for _, e := range p.conns.endpoints.all {
		if e.Barred() {
			continue
		}
		for m := p.conns.popIdle(e, true, now); m != nil; m = p.conns.popIdle(e, true, now) {
			l := p.lender.acquire(choice{m: m}, ex.Alone, now)
			if m.conn.Idle() { // a system call, but such requests are rare
				return l, nil, nil
			}
			p.giveBack(m, unused)
		}
	}
	if dialed := p.beside.open(now); dialed != nil {
		return nil, dialed, nil
	}
	return nil, nil, exchange.ErrOnlyHTTP2
}

// maxBesideDials bounds the dials for which one request waits: other requests may take the connections.
const maxBesideDials = 4

// errUseQueue says that the pool uses HTTP/1 for all requests. acquireHTTP1 handles it.
var errUseQueue = errors.New("all connections use HTTP/1")
