package http1

import (
	"container/heap"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"adbuffer/internal/client/http2"
	"adbuffer/internal/wire/socket"
)

// parkedConn is the whole state of a client's connection while it is parked. The watch waits for the next request of
// the client. If none arrives, the connection is closed at the time until.
//
// It implements socket.Watcher. It is parked until clients.resume has made a Conn from it. The
// caller of resume serves or closes that Conn.
type parkedConn struct {
	server *Server
	conn   net.Conn
	tls    *tls.Conn   // over conn; nil for cleartext
	http2  *http2.Conn // nil over HTTP/1
	peer   netip.Addr

	opened    time.Time
	requested bool
	requests  uint32
	until     time.Time
	// clients.mu guards the fields below.
	place      int // in clients.parked; notParked once it has been resumed
	unfinished *unfinishedConn
}

const notParked = -1

// parkLocked parks c's connection; c is not used any more. Its HTTP/2 state has been taken from it.
func (c *Conn) parkLocked() {
	pc := &parkedConn{
		server: c.server, conn: c.socket.Conn, tls: c.tls, http2: c.http2, peer: c.Client.Peer,
		opened: c.life.opened, requested: c.life.requested.Load(), requests: c.life.requests.Load(), until: c.deadlines.idleUntil,
	}
	c.http2 = nil // a drain may still read c.http2
	if pc.tls != nil {
		pc.tls.NetConn().(*tlsSocket).leave()
		socket.FreeTLS(pc.tls)
	}
	pc.conn.SetDeadline(time.Time{})
	if !c.server.clients.park(c, pc) {
		go pc.await(socket.New(pc.conn))
	}
}

// await is the goroutine of a parked connection that the watch cannot watch.
func (pc *parkedConn) await(c *socket.Conn) {
	c.Await()
	pc.Notify(false)
}

func (pc *parkedConn) Notify(bool) {
	if c := pc.server.clients.resume(pc); c != nil {
		go c.serveArrived()
	}
}

// newClient returns the connection in the state that parkLocked left.
func (pc *parkedConn) newClient() *Conn {
	c := newConn(pc.server, pc.conn)
	c.Client.Peer, c.life.opened, c.life.phase, c.greeting.begun = pc.peer, pc.opened, serving, true
	c.life.requested.Store(pc.requested)
	c.life.requests.Store(pc.requests)
	c.tls, c.Client.TLS = pc.tls, pc.tls != nil
	if c.Client.TLS {
		c.socket.Records()
		c.tls.NetConn().(*tlsSocket).use(c)
	}
	c.http2 = pc.http2
	if c.http2 != nil {
		c.http2.Use(http2Side{c}, http2Side{c})
		c.isHTTP2.Store(true)
	}
	return c
}

// serveArrived serves a connection that was resumed, unless its client has closed it.
func (c *Conn) serveArrived() {
	if c.socket.PeekSocket() == socket.Ended {
		c.closeNow()
		return
	}
	c.server.http.ServeConn(c)
}

// serveOrClose serves a connection that was resumed if a request has arrived on it, and
// closes it otherwise.
func (c *Conn) serveOrClose() (closed bool) {
	if c.socket.HasInput() {
		go c.serveArrived()
		return false
	}
	c.closeNow()
	return true
}

func (c *Conn) closeNow() {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	c.closeLocked()
}

// parkedHeap orders parked connections by the time of their close. It implements heap.Interface.
type parkedHeap []*parkedConn

func (h parkedHeap) Len() int           { return len(h) }
func (h parkedHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }

func (h parkedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *parkedHeap) Push(x any) {
	pc := x.(*parkedConn)
	pc.place = len(*h)
	*h = append(*h, pc)
}

func (h *parkedHeap) Pop() any {
	last := len(*h) - 1
	pc := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	pc.place = notParked
	return pc
}

func (h *parkedHeap) add(pc *parkedConn)    { heap.Push(h, pc) }
func (h *parkedHeap) remove(pc *parkedConn) { heap.Remove(h, pc.place) }
