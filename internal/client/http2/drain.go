package http2

import (
	"time"

	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// drain closes a connection without losing a request. A first GOAWAY announces the drain, and a second one states the
// last stream that is served. RFC 9113, section 6.8. Streams that the client opens before it has read the first
// GOAWAY are served. Between the two GOAWAYs the server sends a PING, whose ACK shows that the client has read the
// first GOAWAY. Behind the ACK, a client may still send a request that it had begun. So the server goes on reading for
// lateFor after the second GOAWAY, and serves nothing more: the client reads the GOAWAY instead of a reset.
type drain struct {
	announced bool
	final     bool
	over      bool // lateFor has passed since the second GOAWAY
	timer     *time.Timer
}

// drainPing is the content of the PING of a drain.
var drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}

// announceFor is how long a client may take to acknowledge the PING of a drain.
const announceFor = time.Second

// lateFor is how long the connection stays open after the second GOAWAY, unless the client closes it.
const lateFor = 100 * time.Millisecond

// Drain ends the connection once the streams that the client has opened are served.
func (c *Conn) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainLocked()
	c.sendLocked()
}

func (c *Conn) drainLocked() {
	if c.closed || c.drain.announced {
		return
	}
	c.drain.announced = true
	c.out.Frames = http2codec.AppendGoAway(c.out.Frames, http2codec.MaxStreamID, h2.ErrCodeNo, "")
	c.out.Frames = http2codec.AppendPing(c.out.Frames, 0, drainPing[:])
	c.drain.timer = time.AfterFunc(announceFor, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.announcedLocked()
		c.sendLocked()
	})
}

// announcedLocked is called when the client must know of the drain.
func (c *Conn) announcedLocked() {
	if c.closed || !c.drain.announced || c.drain.final {
		return
	}
	c.drain.stop()
	c.drain.final = true
	c.out.Frames = http2codec.AppendGoAway(c.out.Frames, c.lastID, h2.ErrCodeNo, "")
	c.drain.timer = time.AfterFunc(lateFor, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drain.over = true
		c.drainedLocked()
	})
}

// drainedLocked closes a draining connection that has no work left.
func (c *Conn) drainedLocked() {
	if c.closed || !c.drain.over || len(c.streams.open) > 0 || c.running > 0 {
		return
	}
	if c.out.Writing || len(c.out.Frames) > 0 {
		return // write calls it again
	}
	c.closeLocked(errDone)
	if c.serving {
		c.owner.Interrupt()
	} else {
		c.owner.HangUp()
	}
}

func (d *drain) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
