package pool

import (
	"adbuffer/internal/wire/exchange"
)

// growth decides whether another connection is worth opening: it compares the waiting requests with
// the connections that are open or being dialled. Guarded by Pool.mu.
type growth struct {
	opts      *Options
	queue     *queue
	isolation *isolation
	conns     *connections
	size      *size
	governor  *governor

	paused bool // the pool wants a connection, every address pauses, and no dial is under way
}

// wants reports whether one more connection would help, in addition to the dials under way.
func (g *growth) wants() bool {
	switch g.size.next() {
	case exchange.Unknown: // one dial shows the protocol, and so the number of connections needed
		return g.dialing() == 0 && (g.tooFew() || g.queue.n > 0)
	case exchange.HTTP1:
		return g.tooFew() || g.waiting()
	default:
		return !g.sharedFull() && (g.tooFew() || g.waiting() || g.dialing() == 0 && g.conns.shared.wantsAnother())
	}
}

// waiting reports whether requests wait for more places than the dials under way will likely bring.
func (g *growth) waiting() bool { return g.queue.n+g.extraForAlone() > g.placesUnderWay() }

// dialing returns the dials under way that are not for isolated requests.
func (g *growth) dialing() int { return g.governor.dialing - g.isolation.dialing }

// sharedFull reports whether the multiplexed connections and the dials under way reach
// max_http2_conns, or max_conns if they are pipelined.
func (g *growth) sharedFull() bool {
	return g.conns.shared.staying()+g.dialing() >= g.size.sharedLimit()
}

// tooFew reports whether min_idle needs more connections than the open ones and the dials under
// way.
func (g *growth) tooFew() bool {
	return g.conns.serving()-g.conns.single+g.dialing() < g.minIdle()
}

// minIdle returns how many connections stay open without requests.
func (g *growth) minIdle() int {
	if g.conns.endpoints.Refusing() {
		return 0
	}
	return min(g.opts.MinIdle, g.size.limit())
}

// mayDial reports whether max_dials and max_conns allow another dial.
func (g *growth) mayDial() bool {
	return g.mayDialIsolated() && g.used() < g.size.maxConns()
}

// lacksRoom reports whether max_conns, or the size that the pool chose, prevents a dial, and max_dials does not.
func (g *growth) lacksRoom() bool {
	return g.governor.dialing < g.opts.MaxDials && !g.mayDial()
}

// mayDialIsolated reports whether max_dials and max_conns allow a dial for an isolated request. The size that
// the pool chose does not count such connections.
func (g *growth) mayDialIsolated() bool {
	return g.governor.dialing < g.opts.MaxDials && !g.full()
}

// full reports whether max_conns are open, being dialled or being closed.
func (g *growth) full() bool {
	return len(g.conns.members)+g.conns.closing+g.governor.dialing >= g.opts.MaxConns
}

// used returns how many connections count for the size that the pool chose.
func (g *growth) used() int {
	return len(g.conns.members) - g.conns.single + g.conns.closing + g.dialing()
}

// atLimit reports whether no dial may start because of max_conns, or of the size that the pool chose.
func (g *growth) atLimit() bool {
	return g.used() >= g.size.maxConns() || g.size.next() > exchange.HTTP1 && g.sharedFull()
}

// mayTry reports whether a dial may go to an address on trial although another address is healthy.
// While that dial hangs, a usable connection must exist, or the pool must be able to open another
// one.
func (g *growth) mayTry() bool {
	return g.conns.forecast.protocol != exchange.Unknown && (g.mayDial() || g.conns.serving() > 0)
}

// placesUnderWay returns how many places will likely come from dials under way and from idle connections that the
// janitor checks. Dials to addresses on trial do not count. So no request waits only for them while the pool may dial
// another address.
func (g *growth) placesUnderWay() int {
	return g.conns.checking + max(0, g.dialing()-g.governor.onTrial)*g.size.perConn()
}

// extraForAlone returns how many places the waiters need beyond one each: a request that must be
// alone on a pipelined connection needs all its places.
func (g *growth) extraForAlone() int {
	if g.size.next() != exchange.HTTP1Pipelined {
		return 0
	}
	return g.queue.alone * (g.size.perConn() - 1)
}

// servedByDials estimates how many waiters will get a place although no request releases one: these waiters are not
// pending. While dials are under way it counts the places of all connections that the pool may still open, even if
// max_dials delays most of them. Therefore it is usually more than placesUnderWay, which says whether to dial.
func (g *growth) servedByDials() int {
	n := g.conns.checking
	if g.governor.dialing+g.conns.closing > 0 && !g.paused {
		conns := g.size.mayOpen()
		n += max(conns, conns*g.size.perConn()-g.extraForAlone())
		if g.conns.forecast.protocol == exchange.Unknown && conns > 0 {
			n = max(n, g.size.sharedLimit()*g.opts.MaxStreams)
		}
	}
	return n
}

// hopeless reports whether no connection takes requests and none is being dialled.
func (g *growth) hopeless() bool { return g.governor.dialing == 0 && g.conns.serving() == 0 }
