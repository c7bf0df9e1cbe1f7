package http1

import (
	"sync"
	"sync/atomic"
	"time"
)

// lifecycle is the phase that a client's connection is in.
//
// An idle client must cost little. fasthttp's server holds 20 KB and a goroutine for each
// connection that it serves. So a connection on which no request arrives for a while is detached
// from the server (parked), and served again when bytes arrive (resumed):
//
//	connecting ──PROXY header, TLS handshake──▶ serving
//	serving ──no request arrives──▶ parking ──the server calls Close──▶ parked
//
// To park, Read reports to the server that the stream has ended. The server frees its buffers and
// calls Close, which leaves a parkedConn in place of the Conn. When bytes arrive,
// clients.resume makes a new Conn, which begins in serving.
//
// Each phase but parked may end in closed. serving may end in lingering first; see linger.go.
type lifecycle struct {
	mu    sync.Mutex
	phase phase // guarded by mu

	opened    time.Time     // when the connection was accepted
	requested atomic.Bool   // the client has sent a byte of a request, or HTTP/2 has begun
	requests  atomic.Uint32 // requests and streams that the connection has carried
}

type phase uint8

const (
	connecting phase = iota
	serving
	parking
	parked // another object owns the connection
	lingering
	closed
)

// change enters phase to, and returns false if the phase is not from.
func (l *lifecycle) change(from, to phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != from {
		return false
	}
	l.phase = to
	return true
}

// closing says what becomes of a connection that fasthttp's server no longer uses.
type closing uint8

const (
	ends    closing = iota // its socket closes
	resumes                // it is served again at once
	parks                  // a parkedConn takes its place
	lingers                // it lingers first; see linger.go
	stays                  // it lingers already
)

// leaveLocked enters the phase of a connection that fasthttp's server no longer uses, except for closed, which
// closeLocked enters. busy reports whether a connection that should be parked must be served again, unread whether a
// served connection must linger.
func (l *lifecycle) leaveLocked(busy, unread func() bool) closing {
	switch {
	case l.phase == parking && busy():
		l.phase = serving
		return resumes
	case l.phase == parking:
		l.phase = parked
		return parks
	case l.phase == lingering:
		return stays
	case l.phase == serving && unread():
		l.phase = lingering
		return lingers
	}
	return ends
}

// parkAfter is how long a client may be idle before its connection is parked.
const parkAfter = 200 * time.Millisecond

// park begins parking when a Read has waited long enough for a request.
func (c *Conn) park() { c.life.change(serving, parking) }

// busy reports whether the connection must be served again instead of being parked: the client has just switched to
// HTTP/2, or the HTTP/2 connection is closed, drains, or is no longer idle. If busy returns false, Leave has detached
// the HTTP/2 connection from c.
func (c *Conn) busy() bool { return c.upgraded || c.http2 != nil && !c.http2.Leave() }

// Close implements net.Conn. The server calls it when it no longer uses the connection.
func (c *Conn) Close() error {
	c.release()
	c.early.release(c.server)
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	switch c.life.leaveLocked(c.busy, c.mustLinger) {
	case resumes:
		c.upgraded = false
		go c.server.http.ServeConn(c)
	case parks:
		c.parkLocked()
	case lingers:
		go c.linger()
	case ends:
		return c.closeLocked()
	}
	return nil
}

func (c *Conn) closeLocked() error {
	was := c.life.phase
	if was != closed {
		c.life.phase = closed
		c.server.reuse.ended(c)
		c.server.open.Add(-1)
		c.server.clients.remove(c)
		c.server.watch.set.Remove(c.socket, c)
	}
	if c.http2 != nil && was != closed {
		c.deadlines.closing.Store(true)
		c.http2.Close()
	}
	if c.tls != nil && was != connecting && was != closed {
		c.deadlines.closing.Store(true)
		return c.tls.Close() // sends close_notify, if the socket takes it at once
	}
	return c.socket.Close()
}
