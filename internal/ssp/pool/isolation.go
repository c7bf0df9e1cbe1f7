package pool

import "adbuffer/internal/wire/exchange"

// isolation serves isolated requests, which share no connection: an SSP may end a connection because
// of such a request. An isolated request uses an exclusive connection. If none is idle, the pool opens an
// HTTP/2 connection that carries one exchange at a time (member.single), or the SSP chooses HTTP/1. Other
// requests may use that connection later, one at a time.
//
// At most a quarter of max_conns carries isolated requests, and at most a quarter of max_dials are dials for
// them, but one of each is always allowed. Further isolated requests wait in their own queue, so that no other request
// waits behind them.
//
// A pool whose configured protocol is HTTP/1 does not need this: without pipelining each connection carries one
// exchange at a time, and with it isolated requests are alone on their connections. Guarded by Pool.mu.
type isolation struct {
	queue   queue
	dialing int // dials under way for isolated requests
}

// isolates reports whether isolated requests need connections of their own.
func (o *Options) isolates() bool {
	return o.Protocol == exchange.HTTP2 || o.Protocol == exchange.Unknown
}

// isolatedLimit returns how many connections may carry isolated requests.
func (o *Options) isolatedLimit() int { return max(1, o.MaxConns/4) }
