package pool

import (
	"fmt"

	"adbuffer/internal/upstream"
)

// crowd is what is full when a request finds no room in the queue. The text is
// made by the request, outside of the lock.
type crowd struct {
	inUse, places, conns, maxConns, pending, maxPending int

	http2 bool
	cause error // why no more connections are opened, where that is it
}

func (p *Pool) crowdLocked() crowd {
	c := crowd{
		inUse: p.inUse, places: p.possibleLocked(), conns: len(p.members) + p.dialing, maxConns: p.capLocked(),
		pending: p.queue.beyond, maxPending: p.opts.MaxPending, http2: p.nextLocked() == upstream.HTTP2,
	}
	if p.heldBack {
		c.cause = p.lastDial
	}
	return c
}

func (c *crowd) error() error {
	setting := "pool.max_conns"
	if c.http2 {
		setting = "pool.max_http2_conns, pool.max_streams_per_conn"
	}
	return &upstream.Error{
		Outcome: upstream.PendingFull, Progress: upstream.NotSent, Err: c.cause,
		Detail: fmt.Sprintf("%d of %d places busy on %d of %d connections, %d of %d places in the queue taken; see %s and pool.max_pending",
			c.inUse, c.places, c.conns, c.maxConns, c.pending, c.maxPending, setting),
	}
}
