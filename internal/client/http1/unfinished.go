package http1

import (
	"container/list"
	"net/netip"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/cpushare"
)

// unfinished holds the connections that wait for the rest of a PROXY header, a TLS handshake or a message head. A new
// connection is unfinished until its first head has arrived, even while it is parked. Later it is unfinished only
// while a Read waits for the rest of a head, so a head that arrives in one piece does not make it unfinished.
//
// Unfinished connections cost their clients nothing, so at max_connections an unfinished connection is closed to make
// room for a new connection; see makeRoom. clients.mu guards the lists and their members.
type unfinished struct {
	// groups holds the connections by a hash of their clients' networks (cpushare.PartyOf), in lists of
	// *unfinishedConn, oldest first. The number of groups is constant, so looking at all groups has a bounded cost.
	groups [256]list.List
	count  int // number of connections in all groups
	// Numbers of connections that were closed to make room: before the end of the PROXY header or TLS handshake, and
	// before the end of a message head.
	handshakes, heads atomic.Uint64
}

// unfinishedConn is an unfinished connection. Either served or parked is set.
type unfinishedConn struct {
	served *Conn
	parked *parkedConn
	group  *list.List
	place  *list.Element // its element in group; nil once the connection was taken or closed
	since  time.Time     // when it became unfinished, or when take last examined and kept it
	// greeting means that the PROXY header or the TLS handshake is not complete.
	greeting atomic.Bool
	// reading means that a Read waits for the client, or is about to. Bytes may have arrived that it has not returned
	// yet, so progressLocked examines the socket too.
	reading atomic.Bool
	// flight is when adbuffer last sent a part of a TLS handshake, or completed the handshake, in Unix nanoseconds;
	// see flightFor.
	flight atomic.Int64
}

// progress says what an unfinished connection waits for.
type progress uint8

const (
	// silent connections wait for their clients.
	silent progress = iota
	// greets means that the handshake makes progress: adbuffer is about to do its part, or has just done its part and
	// may expect the client's next bytes. Without this state, clients that connect faster than adbuffer can do
	// handshakes would push each other out, and none would be served.
	greets
	// heard connections have sent bytes of a request that adbuffer is about to read.
	heard
)

const (
	// unfinishedFor is how long an unfinished connection is young.
	unfinishedFor = time.Second
	// flightFor is how long a client may take for its next part of a TLS handshake, and after the
	// handshake for the first byte of a request.
	flightFor = 500 * time.Millisecond
)

// newcomer is a connection that has just been accepted.
type newcomer struct {
	peer    netip.Addr // of its client; zero for a Unix socket
	unknown bool       // its client is in a PROXY header that has not been read, and peer is zero
}

// makeRoom closes a connection to make room for a newcomer. It returns false if no connection may be closed.
//
// It prefers to close an unfinished connection, since the clients of idle connections have made requests; see
// unfinished.take. But a client that has just connected is about to make a request. So if at most a quarter of
// maxConnections are unfinished, and all of these are young, makeRoom prefers to close the connection that has been
// idle for longest. But for a newcomer whose group has more than a quarter of maxConnections unfinished, it closes no
// idle connection of another group: otherwise a client that completes one handshake after the other would push out all
// idle clients. If no idle connection may be closed, it may still close a young unfinished connection.
func (s *Server) makeRoom(maxConnections int, n newcomer) bool {
	quarter := maxConnections / 4
	return s.dropUnfinished(n, quarter, unfinishedFor) ||
		s.clients.mayCloseIdle(n, quarter) && s.dropIdle() ||
		s.dropUnfinished(n, 0, 0)
}

func (c *clients) mayCloseIdle(n newcomer, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.parked) > 0 && c.unfinished.mayCloseIdle(n, c.parked[0].peer, limit)
}

// mayCloseIdle reports whether the connection of a client at idle, which has been idle for longest, may be closed for
// the newcomer: the newcomer's group has at most limit unfinished connections, or the idle connection is of that
// group. A newcomer whose client is unknown counts as one of the largest group.
func (u *unfinished) mayCloseIdle(n newcomer, idle netip.Addr, limit int) bool {
	group := u.groupOf(n.peer)
	if largest := u.largest(); n.unknown && largest != nil {
		group = largest
	}
	return group.Len() <= limit || u.groupOf(idle) == group
}

// dropUnfinished closes an unfinished connection to make room for a newcomer. It returns false if none may be closed,
// or if at most limit connections are unfinished and all of these are younger than age.
func (s *Server) dropUnfinished(n newcomer, limit int, age time.Duration) bool {
	one := s.clients.takeUnfinished(n.peer, limit, age)
	if one == nil {
		return false
	}
	for !s.clients.serve(one).drop() { // the connection was parked meanwhile
	}
	return true
}

// drop closes a connection that takeUnfinished has taken. It returns false if the connection is parked.
func (c *Conn) drop() bool {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	dropped := &c.server.clients.unfinished.heads
	switch {
	case c.life.phase == parked:
		return false
	case c.life.phase == closed, c.life.phase == lingering: // its place is free, or will be soon
		return true
	case c.life.phase == connecting && c.greeting.needed:
		dropped = &c.server.clients.unfinished.handshakes
	case c.life.phase == serving && c.life.requested.Load() && c.http2 == nil:
		c.deadlines.closing.Store(true)
		c.refuse(c, c.server.madeRoom())
	}
	dropped.Add(1)
	c.closeLocked()
	return true
}

// setUnfinished records whether the connection is unfinished. If takeUnfinished has taken the connection, drop is about
// to close it: then setUnfinished(false) returns false and keeps c.unfinished, which leads drop to the connection even
// if it is parked meanwhile. Only the connection's goroutine calls setUnfinished.
func (c *Conn) setUnfinished(now bool) (open bool) {
	if now == (c.unfinished != nil) {
		return true
	}
	all := &c.server.clients
	all.mu.Lock()
	defer all.mu.Unlock()
	if now {
		all.unfinished.add(c, time.Now())
		return true
	}
	open = all.unfinished.remove(c.unfinished)
	if open {
		c.unfinished = nil
	}
	return open
}

// isTaken reports whether takeUnfinished has taken the connection. After a Read that returned bytes of a request, the
// field reading is false, so takeUnfinished no longer takes the connection. Only the connection's goroutine calls isTaken.
func (c *Conn) isTaken() bool {
	if c.unfinished == nil {
		return false
	}
	all := &c.server.clients
	all.mu.Lock()
	defer all.mu.Unlock()
	return c.unfinished.place == nil
}

// setPeer records the client's address that a PROXY header has stated.
func (c *clients) setPeer(cc *Conn, peer netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cc.Client.Peer = peer
	since := cc.unfinished.since
	if c.unfinished.remove(cc.unfinished) {
		c.unfinished.insert(cc.unfinished, peer, since)
	}
}

// countUnfinished returns how many connections are unfinished, and how many of them wait for their
// clients.
func (c *clients) countUnfinished() (all, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.unfinished.groups {
		for e := c.unfinished.groups[i].Front(); e != nil; e = e.Next() {
			one := e.Value.(*unfinishedConn)
			if !one.inFlight() && (one.parked != nil || one.reading.Load() && !one.served.socket.HasInput()) {
				waiting++
			}
		}
	}
	return c.unfinished.count, waiting
}

// takeUnfinished removes and returns a connection, under the conditions of dropUnfinished.
func (c *clients) takeUnfinished(peer netip.Addr, limit int, age time.Duration) *unfinishedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := &c.unfinished
	if u.count <= limit && !u.hasOlder(age) {
		return nil
	}
	return u.take(peer, c.progressLocked)
}

// progressLocked returns what an unfinished connection waits for. Unless a parked connection is in flight,
// progressLocked resumes it. If its client has sent bytes, the connection is served from now on. Otherwise it is
// silent, and the caller must take and close it.
func (c *clients) progressLocked(one *unfinishedConn) progress {
	switch {
	case one.inFlight() && (one.parked != nil || one.greeting.Load() || one.reading.Load()):
		return greets
	case one.parked != nil:
		cc := c.serveLocked(one)
		if !cc.socket.HasInput() {
			return silent
		}
		go cc.serveArrived()
		return heard
	case one.reading.Load() && !one.served.socket.HasInput():
		return silent
	case one.greeting.Load():
		return greets
	}
	return heard
}

// inFlight reports whether the client's next bytes may still be in flight, since adbuffer did its part less than
// flightFor ago.
func (u *unfinishedConn) inFlight() bool {
	return time.Since(time.Unix(0, u.flight.Load())) < flightFor
}

// maxLooks bounds how many connections take examines.
const maxLooks = 8

// take removes and returns the connection to close to make room for a new connection of a client at peer, or nil.
// progressOf returns what a connection waits for.
//
// The connection is of the group with the most connections, so that a client with many connections does not cost
// another client a connection. Preferred is the oldest silent connection of the group. If none is silent, it is the
// oldest connection that greets, unless the new connection is of the same group, or would make its own group as large
// as this group. Otherwise it is the oldest connection of all groups, if that is silent and not young. Connections of
// the group that were examined and stay move to the end of its list, and count as new.
func (u *unfinished) take(peer netip.Addr, progressOf func(*unfinishedConn) progress) *unfinishedConn {
	group := u.largest()
	if group == nil {
		return nil
	}
	var greeting *unfinishedConn
	for range min(group.Len(), maxLooks) {
		one := group.Front().Value.(*unfinishedConn)
		switch progressOf(one) {
		case silent:
			u.remove(one)
			return one
		case greets:
			if greeting == nil {
				greeting = one
			}
		}
		one.since = time.Now()
		group.MoveToBack(one.place)
	}
	if own := u.groupOf(peer); greeting != nil && own != group && own.Len()+1 < group.Len() {
		u.remove(greeting)
		return greeting
	}
	if one := u.oldest(); time.Since(one.since) >= unfinishedFor && progressOf(one) == silent {
		u.remove(one)
		return one
	}
	return nil
}

// largest returns the group with the most connections; among groups of equal size, the group with the oldest
// connection. It returns nil if there is no connection.
func (u *unfinished) largest() *list.List {
	var largest *list.List
	for i := range u.groups {
		g := &u.groups[i]
		switch {
		case g.Len() == 0:
		case largest == nil, g.Len() > largest.Len(), g.Len() == largest.Len() && sinceOf(g).Before(sinceOf(largest)):
			largest = g
		}
	}
	return largest
}

// oldest returns the oldest connection of all groups, of which there must be one.
func (u *unfinished) oldest() *unfinishedConn {
	var oldest *unfinishedConn
	for i := range u.groups {
		if e := u.groups[i].Front(); e != nil {
			if one := e.Value.(*unfinishedConn); oldest == nil || one.since.Before(oldest.since) {
				oldest = one
			}
		}
	}
	return oldest
}

func (u *unfinished) hasOlder(age time.Duration) bool {
	return u.count > 0 && time.Since(u.oldest().since) >= age
}

func sinceOf(g *list.List) time.Time { return g.Front().Value.(*unfinishedConn).since }

func (u *unfinished) groupOf(peer netip.Addr) *list.List {
	return &u.groups[cpushare.PartyOf(peer)%cpushare.Party(len(u.groups))]
}

// serve returns the Conn of an unfinished connection, which it resumes if it is parked.
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

func (u *unfinished) add(cc *Conn, since time.Time) {
	cc.unfinished = &unfinishedConn{served: cc}
	u.insert(cc.unfinished, cc.Client.Peer, since)
}

func (u *unfinished) insert(one *unfinishedConn, peer netip.Addr, since time.Time) {
	one.since, one.group = since, u.groupOf(peer)
	one.place = one.group.PushBack(one)
	u.count++
}

// remove returns false if the connection was removed before.
func (u *unfinished) remove(one *unfinishedConn) bool {
	if one.place == nil {
		return false
	}
	one.group.Remove(one.place)
	one.place = nil
	u.count--
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
