package http1

import (
	"sync/atomic"
	"time"
)

// deadlines are the timeouts of a client's connection. They are set here and not in fasthttp, which
// sets three deadlines for each request and reads the clock for each. Nearly all requests arrive in
// one piece, and nearly all responses leave in one. So a deadline is set only if a Read or a Write
// has to wait; see socket.Conn.OnWait.
//
// Over HTTP/1, only the goroutine that serves the connection uses them, but for drop: it sets closing, and then writes.
// Over HTTP/2, one goroutine reads while another one writes: they share no field, since a Write uses only writeBy,
// respondedAt and closing.
type deadlines struct {
	stage stage
	// by is when the stage timed must end. It is set when a Read first waits in that stage.
	by    time.Time
	timed stage
	// idleUntil is when idle_timeout ends.
	idleUntil time.Time
	// writeBy is the deadline of the current Write. It is zero until that Write waits.
	writeBy time.Time
	// respondedAt is when the last response was made; zero if that is unknown, or if its Write waited.
	respondedAt time.Time
	// closing means that Writes no longer wait.
	closing atomic.Bool
}

// stage is what a client's connection waits for.
type stage uint8

const (
	idle        stage = iota // the first byte of a request
	handshaking              // the rest of the TLS handshake
	inHead                   // the rest of a message head
	beforeBody               // the first byte of a body
	inBody                   // the rest of a body
)

// enter begins stage s, which gets a deadline of its own.
func (d *deadlines) enter(s stage) { d.stage = s }

// reset begins the wait for a request.
func (d *deadlines) reset() { d.stage, d.timed = idle, idle }

// enterUntil begins a stage that must end by t, whether a Read waits or not.
func (d *deadlines) enterUntil(s stage, t time.Time) {
	d.stage, d.timed, d.by = s, s, t
}

// readIdle returns when a Read that waits for a request times out: at the moment of parking.
func (d *deadlines) readIdle(o *Options) time.Time {
	now := d.respondedAt
	if now.IsZero() {
		now = time.Now()
	}
	d.respondedAt = time.Time{}
	d.idleUntil = now.Add(o.IdleTimeout)
	return now.Add(min(parkAfter, o.IdleTimeout))
}

// read returns the deadline of a Read that waits within a request. The rest of a head, the first byte of a body, and the
// rest of a body must each arrive within read_timeout, which runs from the first Read that waits for it.
func (d *deadlines) read(o *Options) time.Time {
	if d.stage == idle { // a TLS record has begun to arrive
		d.stage = inHead
	}
	if d.timed != d.stage {
		d.by, d.timed = time.Now().Add(o.ReadTimeout), d.stage
	}
	return d.by
}

// write returns the deadline of a Write that waits. TLS sends a long response in many records, all
// of which together have write_timeout. HTTP/2 bounds its responses itself: each of its writes is a
// few frames, and each has write_timeout.
func (d *deadlines) write(o *Options, http2 bool) time.Time {
	if d.closing.Load() {
		return time.Unix(0, 0)
	}
	d.respondedAt = time.Time{}
	if d.writeBy.IsZero() || http2 {
		d.writeBy = time.Now().Add(o.WriteTimeout)
	}
	return d.writeBy
}

// waitRead and waitWrite are called before a Read or a Write waits, and return its
// deadline; the zero time is none.
func (c *Conn) waitRead() time.Time {
	c.Client.Waited = 0
	by := c.readBy()
	if c.unfinished != nil {
		c.unfinished.reading.Store(true)
	}
	return by
}

func (c *Conn) readBy() time.Time {
	o := c.server.options()
	switch {
	case c.isHTTP2.Load():
		by, unfinished := c.http2.WaitUntil(c.socket.MidRecord())
		c.setUnfinished(unfinished)
		return by
	case c.deadlines.stage == idle && !c.socket.MidRecord():
		return c.deadlines.readIdle(o)
	case c.body.of != nil:
		c.body.of.Await()
	case c.deadlines.stage <= inHead:
		c.setUnfinished(true)
	}
	return c.deadlines.read(o)
}

func (c *Conn) waitWrite() time.Time {
	switch {
	case c.responding != nil:
		c.responding.Unread()
	case c.isHTTP2.Load() && !c.deadlines.closing.Load(): // closing: the Write is the last one, and http2.Conn.Close may hold the lock that WriteWaits takes
		c.http2.WriteWaits()
	}
	return c.deadlines.write(c.server.options(), c.isHTTP2.Load())
}
