package http1

import (
	"sync/atomic"
	"time"
)

// pause is the time for which a connection must not be read, because of its last responses. It is safe for concurrent
// use.
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

// awaitPause waits for the pauses that the last responses require, before the next read of a request. It records in
// Waited how long bytes that arrived meanwhile have waited. Waited stays until a Read waits for the client, since
// several reads may be needed to read those bytes; see waitRead.
func (c *Conn) awaitPause() {
	if c.pause.left.Load() != 0 && !c.server.draining.Load() {
		c.Client.Waited = min(time.Duration(c.pause.left.Swap(0)), maxPause)
		time.Sleep(c.Client.Waited)
	}
	if c.Client.Waited > 0 && c.socket.HasInput() {
		if since, ok := c.socket.SinceInput(); ok {
			c.Client.Waited = min(c.Client.Waited, since)
		}
	}
}
