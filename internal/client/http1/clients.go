package http1

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"adbuffer/internal/machine/alarm"
)

// clients holds the open client connections. A connection is either served or parked.
type clients struct {
	mu     sync.Mutex
	served map[*Conn]struct{}
	parked parkedHeap
	// unfinished holds the connections, served or parked, whose handshake or request head is incomplete.
	unfinished unfinished
	// idle calls expire when the first parked connection has been idle for idle_timeout, or earlier.
	idle alarm.Alarm

	cut bool // cutAll was called: connections are closed at once
}

// add adds a new connection.
func (c *clients) add(cc *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(cc)
	c.unfinished.add(cc, cc.life.opened)
	cc.unfinished.greeting.Store(cc.greeting.needed)
}

func (c *clients) addLocked(cc *Conn) {
	if c.served == nil {
		c.served = make(map[*Conn]struct{})
	}
	c.served[cc] = struct{}{}
	if c.cut {
		cc.socket.Close()
	}
}

func (c *clients) remove(cc *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.served, cc)
	if cc.unfinished != nil {
		c.unfinished.remove(cc.unfinished)
	}
}

// park replaces cc by pc. It returns false if the watch cannot report the arrival of a request. It holds mu until it
// returns, since the watch may resume pc at once.
func (c *clients) park(cc *Conn, pc *parkedConn) (isWatched bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.served, cc)
	c.parked.add(pc)
	c.unfinished.parkLocked(cc, pc)
	c.armLocked()
	if c.cut {
		pc.conn.Close()
	}
	return pc.server.watch.set.AwaitArrival(cc.socket, pc)
}

// resume replaces pc by a Conn, which it returns. It returns nil if pc is no longer parked.
func (c *clients) resume(pc *parkedConn) *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pc.place == notParked {
		return nil
	}
	return c.resumeLocked(pc)
}

// resumeLocked resumes pc. It locks the HTTP/2 connection of pc while it holds mu; for served connections the order
// of the locks is the opposite.
func (c *clients) resumeLocked(pc *parkedConn) *Conn {
	c.parked.remove(pc)
	cc := pc.newClient()
	c.addLocked(cc)
	c.unfinished.resumeLocked(pc, cc)
	pc.server.watch.set.AwaitHangUp(cc.socket, cc)
	return cc
}

// resumeFirst resumes the parked connection that has been idle for longest. It returns nil if no connection is
// parked.
func (c *clients) resumeFirst() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parked) == 0 {
		return nil
	}
	return c.resumeLocked(c.parked[0])
}

// resumeDue resumes a connection that has been idle for idle_timeout. If there is none, it sets idle for the next
// such connection, and returns nil.
func (c *clients) resumeDue() *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parked) > 0 && !time.Now().Before(c.parked[0].until) {
		return c.resumeLocked(c.parked[0])
	}
	c.idle.At = time.Time{}
	c.armLocked()
	return nil
}

// armLocked sets idle for the parked connection that must be closed first.
func (c *clients) armLocked() {
	if len(c.parked) > 0 {
		c.idle.Set(c.parked[0].until)
	}
}

// expire closes connections that have been idle for idle_timeout.
func (c *clients) expire() {
	for cc := c.resumeDue(); cc != nil; cc = c.resumeDue() {
		cc.serveOrClose()
	}
}

// list returns the connections that are served now.
func (c *clients) list() []*Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.AppendSeq(make([]*Conn, 0, len(c.served)), maps.Keys(c.served))
}

func (c *clients) countParked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked)
}

func (c *clients) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.served)+len(c.parked) == 0
}

// closeIdle closes parked connections and unfinished greetings, and drains connections
// of HTTP/2. A parked connection on which a request has arrived is served. The server's
// idle connections are parked within 200 ms.
func (c *clients) closeIdle() {
	for range c.countParked() { // bounded, since connections may be parked again meanwhile
		switch cc := c.resumeFirst(); {
		case cc == nil:
		case cc.http2 != nil:
			go cc.serveArrived() // and drained below
		default:
			cc.serveOrClose()
		}
	}
	for _, cc := range c.list() {
		cc.life.mu.Lock()
		switch {
		case cc.http2 != nil:
			cc.http2.Drain()
		case cc.life.phase == connecting && cc.greeting.needed:
			cc.closeLocked()
		}
		cc.life.mu.Unlock()
	}
}

// cutAll closes all sockets. The server then closes the connections.
func (c *clients) cutAll() {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	for range c.countParked() {
		if cc := c.resumeFirst(); cc != nil {
			cc.closeNow()
		}
	}
	for _, cc := range c.list() {
		cc.socket.Close()
	}
}

// awaitFirstRequests waits for clients that connected within the last second, until they send the
// first byte of a request or close. It also returns when ctx ends. Such a client is about to send a
// request, and cannot know that its connection will be closed. No connection is accepted any more.
func (s *Server) awaitFirstRequests(ctx context.Context) {
	tick := time.NewTicker(firstRequestPoll)
	defer tick.Stop()
	for s.clients.awaitsFirstRequest(time.Now().Add(-firstRequestWait)) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const (
	firstRequestWait = time.Second
	firstRequestPoll = 5 * time.Millisecond
)

// awaitsFirstRequest reports whether a client that connected after since has not sent a byte of a
// request yet.
func (c *clients) awaitsFirstRequest(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cc := range c.served {
		if !cc.life.requested.Load() && cc.life.opened.After(since) {
			return true
		}
	}
	return slices.ContainsFunc(c.parked, func(pc *parkedConn) bool { return !pc.requested && pc.opened.After(since) })
}
