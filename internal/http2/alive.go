package http2

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/upstream"
)

// alive finds out, if it is asked to, that a silent peer has gone: after
// PingAfterIdle without a byte read it sends a PING, and after PingTimeout
// without a byte more it ends the connection. It looks at a counter from time
// to time, so reads cost no clock; silence is noticed after one to two times
// PingAfterIdle.
type alive struct {
	reads atomic.Uint64 // reads that brought something; the reader counts
	waits atomic.Uint64 // reads that have begun

	// Conn.mu guards the rest.
	timer *time.Timer // nil if not asked
	seen  uint64      // reads when the timer was set
	asked bool        // our PING is out
}

var alivePing = [8]byte{'a', 'l', 'i', 'v', 'e'}

// busy reports whether the reader is handling what it has read.
func (a *alive) busy() bool { return a.reads.Load() == a.waits.Load() }

func (a *alive) start(c *Conn) {
	if c.opts.PingAfterIdle > 0 {
		c.mu.Lock()
		a.timer = time.AfterFunc(c.opts.PingAfterIdle, c.checkAlive)
		c.mu.Unlock()
	}
}

func (a *alive) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (c *Conn) checkAlive() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	a := &c.alive
	reads := a.reads.Load()
	wait := c.opts.PingAfterIdle
	switch {
	case reads != a.seen:
		a.asked = false
	case a.asked:
		c.deadLocked()
		c.unlock()
		return
	default:
		a.asked = true
		c.out.buf = appendPing(c.out.buf, 0, alivePing[:])
		wait = c.opts.PingTimeout
	}
	a.seen = reads
	a.timer.Reset(wait)
	c.flush(nil, nil)
}

// deadLocked ends a connection whose peer does not answer PINGs.
func (c *Conn) deadLocked() {
	c.shutLocked(upstream.ClosedTimeout, &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed,
		Detail: "the SSP is silent: it did not answer an HTTP/2 PING"})
	c.hangUpLocked()
}
