package proxy

import (
	"context"
	"io"
	"slices"
	"time"

	"adbuffer/internal/socket"
)

// An idle client costs little: its connection and a goroutine that waits, none
// of the server's buffers. fasthttp's server holds 20 KB for each connection as
// long as it serves it, so one on which no request comes for a while is taken
// away from it, and given back when there is something to read:
//
//	greeting ──a PROXY header is read, hands are shaken──▶ serving
//	serving ──no request comes──▶ leaving ──the server lets go──▶ parked
//	   ▲                                                            │
//	   └────────────────────something has come──────────────────────┘
//
// Each of them ends in closed, after serving by way of lingering where the client
// may be sending; see lingerclose.go. To leave, Read tells the server that the stream
// has ended; it gives its buffers up then, and calls Close, which parks the
// connection instead. That costs a request nothing, unless the client had been
// idle before: 4 µs then.
type phase uint8

const (
	greeting phase = iota
	serving
	leaving
	parked
	lingering
	closed
)

// How long a client may be idle before its connection is parked.
const (
	parkAfter       = 200 * time.Millisecond
	parkAfterReduce = 10 * time.Millisecond // with reduce_idle_memory
)

func (o *Options) parkAfter() time.Duration {
	if o.ReduceIdleMemory {
		return parkAfterReduce
	}
	return parkAfter
}

// leave is called where a Read has waited in vain for a request. The server is told
// that the stream has ended, and calls Close.
func (c *clientConn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == serving {
		c.phase = leaving
	}
}

// Close implements net.Conn. The server calls it when it is done with the
// connection.
func (c *clientConn) Close() error {
	c.release()
	c.early.release(c.proxy)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == leaving {
		c.phase = parked
		go c.awaitRequest()
		return nil
	}
	switch {
	case c.phase == lingering:
		return nil
	case c.phase == serving && c.lingers():
		c.phase = lingering
		go c.linger()
		return nil
	}
	return c.closeLocked()
}

func (c *clientConn) closeLocked() error {
	was := c.phase
	if was != closed {
		c.phase = closed
		c.proxy.open.Add(-1)
		c.proxy.clients.remove(c)
	}
	if c.tls != nil && was != greeting && was != closed {
		return c.closeTLS()
	}
	return c.Conn.Close()
}

// closeTLS says close_notify, where that can be sent without waiting, and closes
// the socket.
func (c *clientConn) closeTLS() error {
	c.closing.Store(true)
	return c.tls.Close()
}

// awaitRequest is a parked connection's goroutine. It ends when the connection
// does, or when the server has let go of it once more.
func (c *clientConn) awaitRequest() {
	err := c.Await(c.idleUntil)
	if err == nil && c.Peek() == socket.Ended {
		err = io.EOF
	}
	if c.unpark(err) {
		c.proxy.server.ServeConn(c) //nolint:errcheck // about clients' connections we count what matters
	}
}

// unpark gives the connection back to the server, or closes it where err says
// that nothing more will come.
func (c *clientConn) unpark(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != parked || err != nil {
		c.closeLocked() //nolint:errcheck // nothing is left to be done about it
		return false
	}
	c.phase = serving
	return true
}

// closeIdle closes what is parked or has not said yet what it wants, and has
// connections of HTTP/2 end. Parked connections on which a request has come are
// left to their goroutines, which are about to find it. Those that the server waits
// on are parked soon.
func (c *clients) closeIdle() {
	for _, cc := range c.list() {
		cc.mu.Lock()
		switch {
		case cc.phase == parked && !cc.HasCome(), cc.phase == greeting && cc.greets:
			cc.closeLocked() //nolint:errcheck // nothing is left to be done about it
		case cc.http2 != nil && !cc.goingAway:
			cc.goingAway = true
			cc.endHTTP2Locked()
		}
		cc.mu.Unlock()
	}
}

// hearOut waits until everybody who was accepted within the last hearWithin has
// asked for something, or left, or ctx ends: a client that has just connected is
// about to, and cannot know that the connection will be closed. Nothing is
// accepted any more.
func (p *Proxy) hearOut(ctx context.Context) {
	tick := time.NewTicker(hearEvery)
	defer tick.Stop()
	for p.clients.unheard(time.Now().Add(-hearWithin)) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const (
	hearWithin = time.Second
	hearEvery  = 5 * time.Millisecond
)

// unheard reports whether a client that was accepted after since has asked for
// nothing yet.
func (c *clients) unheard(since time.Time) bool {
	return slices.ContainsFunc(c.list(), func(cc *clientConn) bool { return !cc.heard.Load() && cc.opened.After(since) })
}
