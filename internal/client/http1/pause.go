package http1

import (
	"sync/atomic"
	"time"
)

// pause is the time for which a connection is not read after its last responses. It is safe for
// concurrent use.
//
// A paused connection keeps its goroutine and its buffers, and adbuffer does not learn that its client
// has closed it. So a pause is short, a second at most.
type pause struct{ left atomic.Int64 }

const maxPause = time.Second

func (p *pause) add(d time.Duration) {
	if d > 0 {
		p.left.Add(int64(d))
	}
}

// awaitPause waits as the last responses require, before the next read of a request. It notes how long
// the bytes have waited that arrived meanwhile. Several reads may take them: only a Read that waits for
// the client shows that none is left, see waitRead.
func (c *Conn) awaitPause() {
	if c.pause.left.Load() != 0 && !c.server.draining.Load() {
		c.Waited = min(time.Duration(c.pause.left.Swap(0)), maxPause)
		time.Sleep(c.Waited)
	}
	if c.Waited > 0 && c.HasInput() {
		if since, ok := c.SinceInput(); ok {
			c.Waited = min(c.Waited, since)
		}
	}
}
