package pool

import "adbuffer/internal/wire/exchange"

// forecast predicts the pool's next connection from earlier ones. Guarded by Pool.mu.
type forecast struct {
	protocol exchange.Protocol // of the last connection; Unknown before the first one
	places   int               // of the last connection of this protocol; 0 before the first one
}

func (f *forecast) noteProtocol(pr exchange.Protocol) {
	if f.protocol != pr {
		*f = forecast{protocol: pr}
	}
}

func (f *forecast) notePlaces(pr exchange.Protocol, n int) {
	if pr == f.protocol {
		f.places = n
	}
}

// next returns the likely protocol of the next connection: the last connection's. If the SSP uses
// HTTP/2 only on some connections, all later ones are HTTP/1 once max_http2_conns connections use
// HTTP/2.
func (c *connections) next() exchange.Protocol {
	if c.forecast.protocol == exchange.HTTP2 && c.serving()-c.isolation.single > len(c.shared.list) && c.shared.staying() >= c.sharedLimit() {
		return exchange.HTTP1
	}
	return c.forecast.protocol
}

// perConn returns how many places the next connection will likely have: as many as the last one of
// its protocol. Before the first one it is the configured limit, or 1 while the protocol is
// unknown.
func (c *connections) perConn() int {
	n := c.opts.placesPerConn(c.next())
	if c.forecast.places > 0 {
		n = min(n, c.forecast.places)
	}
	return c.probation.limit(n)
}

// limit returns how many connections of the next connection's kind may be open.
func (c *connections) limit() int { return c.limitOf(c.maxConns()) }

// limitOf returns how many connections of the next connection's kind may be open if at most limit of all
// kinds may be.
func (c *connections) limitOf(limit int) int {
	if c.next() == exchange.HTTP2 {
		return min(c.opts.MaxHTTP2Conns, limit)
	}
	return limit
}

// sharedLimit returns how many multiplexed connections may take requests.
func (c *connections) sharedLimit() int {
	if c.opts.Protocol == exchange.HTTP1Pipelined {
		return c.maxConns()
	}
	return min(c.opts.MaxHTTP2Conns, c.maxConns())
}

// surplus returns how many serving connections exceed max_conns, or the size to which the pool went
// back. A pool that sized itself down keeps its connections until they end.
func (c *connections) surplus() int {
	limit := c.opts.MaxConns
	if c.closeAbove > 0 {
		limit = min(limit, c.closeAbove)
	}
	return c.serving() - limit
}

// mayOpen returns how many more connections may be opened.
func (c *connections) mayOpen() int { return c.room(c.maxConns()) }

// room returns how many more connections may be opened if at most limit may be open.
func (c *connections) room(limit int) int {
	n := limit - len(c.members)
	if c.next() == exchange.HTTP2 {
		n = min(n, c.limitOf(limit)-len(c.shared.list))
	}
	return max(0, n)
}
