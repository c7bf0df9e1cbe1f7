package http1server

import (
	"container/list"
	"sync/atomic"
	"time"
)

// unfinished are the connections that wait for the rest of a PROXY header, a TLS handshake or a
// message head. A new connection is one of them until its first head has arrived, also while it is
// parked. A later head makes its connection one of them only while a Read waits for its rest. So a
// request on a kept connection does not come here if its head arrives in one piece.
//
// They cost their clients nothing. So at max_connections the oldest makes room for a new connection;
// see makeRoom. clients.mu guards the list and its members.
type unfinished struct {
	all list.List // of *unfinishedConn, the oldest in front
	// Connections that made room, in the PROXY header or handshake, and in the message head.
	handshakes, heads atomic.Uint64
}

// unfinishedConn is one of the unfinished connections: either served or parked.
type unfinishedConn struct {
	served *Conn
	parked *parkedConn
	place  *list.Element // nil once it was taken or closed
	since  time.Time
	// reading means that adbuffer has read all bytes that have arrived, and waits for more. A parked
	// connection always waits.
	reading atomic.Bool
	flight  atomic.Int64 // when adbuffer sent its last part of a TLS handshake, in Unix nanoseconds
}

const (
	// unfinishedFor is how long an unfinished connection is young.
	unfinishedFor = time.Second
	// flightFor is how long a client may take for its next part of a TLS handshake.
	flightFor = 500 * time.Millisecond
)

// makeRoom closes a connection, so that a new one can have its place. It returns false if none may
// be closed.
//
// The oldest unfinished connection goes first, since an idle client has made requests. But a client
// that has just connected is about to make one. So while the unfinished connections are few, at most
// a quarter of the places, and all are young, the connection that has been idle for longest goes.
func (s *Server) makeRoom(maxConnections int) bool {
	return s.dropUnfinished(maxConnections/4, unfinishedFor) || s.dropIdle() || s.dropUnfinished(0, 0)
}

// dropUnfinished closes the oldest unfinished connection. It returns false if there is none, or if
// there are at most few, and all of them are younger than age.
func (s *Server) dropUnfinished(few int, age time.Duration) bool {
	one := s.clients.takeUnfinished(few, age)
	if one == nil {
		return false
	}
	for !s.clients.serve(one).drop() { // it was parked meanwhile
	}
	return true
}

// drop closes a connection that was taken. It returns false if the connection is parked.
func (c *Conn) drop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	dropped := &c.server.clients.unfinished.heads
	switch {
	case c.phase == parked:
		return false
	case c.phase == closed, c.phase == lingering: // its place is free, or will be soon
		return true
	case c.phase == connecting && c.greeting.needed:
		dropped = &c.server.clients.unfinished.handshakes
	case c.phase == serving && c.requested.Load() && c.http2 == nil:
		c.deadlines.closing.Store(true)
		c.refuse(c, c.server.madeRoom())
	}
	dropped.Add(1)
	c.closeLocked()
	return true
}

// setUnfinished notes whether the connection is unfinished. It returns false if the connection has
// been taken, and so will be closed. Then it does nothing, so that drop finds the connection even if
// it is parked. The connection's goroutine calls it.
func (c *Conn) setUnfinished(now bool) (open bool) {
	if now == (c.unfinished != nil) {
		return true
	}
	all := &c.server.clients
	all.mu.Lock()
	defer all.mu.Unlock()
	if now {
		all.unfinished.addLocked(c, time.Now())
		return true
	}
	open = all.unfinished.removeLocked(c.unfinished)
	if open {
		c.unfinished = nil
	}
	return open
}

// isTaken reports whether takeUnfinished has taken the connection. After a Read that returned bytes, it takes
// the connection no more: reading is false. The connection's goroutine calls it.
func (c *Conn) isTaken() bool {
	if c.unfinished == nil {
		return false
	}
	all := &c.server.clients
	all.mu.Lock()
	defer all.mu.Unlock()
	return c.unfinished.place == nil
}

// countUnfinished returns how many connections are unfinished, and how many of them wait for their
// clients.
func (c *clients) countUnfinished() (all, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.unfinished.all.Front(); e != nil; e = e.Next() {
		one := e.Value.(*unfinishedConn)
		if one.parked != nil || one.reading.Load() && !one.continues() {
			waiting++
		}
	}
	return c.unfinished.all.Len(), waiting
}

// takeUnfinished removes and returns the oldest one, under the conditions of dropUnfinished. One
// that waits for adbuffer, and not for its client, becomes the youngest instead. It looks at some
// of them only, so that its cost is constant.
func (c *clients) takeUnfinished(few int, age time.Duration) *unfinishedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := &c.unfinished
	for range min(u.all.Len(), maxLooks) {
		one := u.all.Front().Value.(*unfinishedConn)
		if u.all.Len() <= few && time.Since(one.since) < age {
			return nil
		}
		wasParked := one.parked != nil
		cc := c.serveLocked(one)
		if (wasParked || one.reading.Load()) && !one.continues() {
			u.removeLocked(one)
			return one
		}
		one.since = time.Now()
		u.all.MoveToBack(one.place)
		if wasParked {
			go cc.serveArrived()
		}
	}
	return nil
}

const maxLooks = 8

// continues reports whether bytes of the client have arrived, or are to be expected because adbuffer
// has just sent its part of a TLS handshake. Without the latter, clients that connect faster than
// adbuffer computes would push out each other, and none would be served.
func (u *unfinishedConn) continues() bool {
	return u.served.HasInput() || time.Since(time.Unix(0, u.flight.Load())) < flightFor
}

// serve returns the Conn of one, which it resumes if it is parked.
func (c *clients) serve(one *unfinishedConn) *Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serveLocked(one)
}

func (c *clients) serveLocked(one *unfinishedConn) *Conn {
	if one.parked != nil {
		c.resumeLocked(one.parked)
	}
	return one.served
}

func (u *unfinished) addLocked(cc *Conn, since time.Time) {
	cc.unfinished = &unfinishedConn{served: cc, since: since}
	cc.unfinished.place = u.all.PushBack(cc.unfinished)
}

// removeLocked returns false if one was removed before.
func (u *unfinished) removeLocked(one *unfinishedConn) bool {
	if one.place == nil {
		return false
	}
	u.all.Remove(one.place)
	one.place = nil
	return true
}

// parkLocked and resumeLocked move an unfinished connection from cc to pc and back.
func (u *unfinished) parkLocked(cc *Conn, pc *parkedConn) {
	if one := cc.unfinished; one != nil {
		cc.unfinished, pc.unfinished = nil, one
		one.served, one.parked = nil, pc
	}
}

func (u *unfinished) resumeLocked(pc *parkedConn, cc *Conn) {
	if one := pc.unfinished; one != nil {
		pc.unfinished, cc.unfinished = nil, one
		one.served, one.parked = cc, nil
	}
}
