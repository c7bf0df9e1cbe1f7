package proxy

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// listener makes a clientConn of each accepted connection. At max_connections another connection
// makes room for it, or it is refused; see makeRoom.
type listener struct {
	net.Listener
	proxy *Proxy
}

// maxRefusing bounds the refused connections that get a response. Beyond it, connections
// are closed without one, and counted all the same.
const maxRefusing = 64

func (l *listener) Accept() (net.Conn, error) {
	p := l.proxy
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := p.current()
		most := int64(g.opts.MaxConnections)
		for p.open.Load() >= most && p.makeRoom(g.opts.MaxConnections) { // a reload may have lowered the limit
		}
		if p.open.Load() < most { // only Accept adds to it
			p.open.Add(1)
			return p.newClient(c), nil
		}
		p.refuseConnection(c, g)
	}
}

// FreeFile closes the client connection that has been idle for longest, if err says that the process
// or the machine has too many files open. It reports whether it closed one.
func (p *Proxy) FreeFile(err error) bool {
	return (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && p.dropIdle()
}

// dropIdle closes the connection that has been idle for longest. It returns false if none is idle. A
// connection on which a request has arrived is served instead.
func (p *Proxy) dropIdle() bool {
	for {
		cc := p.clients.resumeFirst()
		switch {
		case cc == nil:
			return false
		case cc.serveOrClose():
			p.idleDropped.Add(1)
			return true
		}
	}
}

// refuseConnection writes a response to a connection beyond the limit. It closes the
// connection once the client has had time to read the response: closing it with unread
// bytes would reset it.
func (p *Proxy) refuseConnection(c net.Conn, g *configVersion) {
	f, id := p.tooManyConnections(g), g.newRequestID()
	p.endedUnread(g, peerOf(c), id, f)
	if p.tls != nil {
		c.Close() //nolint:errcheck // a response would cost a handshake
		return
	}
	if header, ok := c.(proxied); ok {
		c = header.NetConn()
	}
	if p.refused.Add(1) > maxRefusing {
		p.refused.Add(-1)
		c.Close() //nolint:errcheck // the connection is refused in any case
		return
	}
	go func() {
		defer p.refused.Add(-1)
		defer c.Close()                             //nolint:errcheck // as above
		c.SetDeadline(time.Now().Add(refuseWithin)) //nolint:errcheck // a closed socket fails the write
		c.Write(g.wholeResponse(f, id))             //nolint:errcheck // the client is refused either way
		discardUnread(c, g.opts.MaxHeaderBytes)
	}()
}

const refuseWithin = 200 * time.Millisecond

// listeners are the listeners that Serve was given. A drain closes them.
type listeners struct {
	mu  sync.Mutex
	all []net.Listener

	closed bool // listeners that are added later are closed at once
}

func (l *listeners) add(one net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		one.Close() //nolint:errcheck // Serve's Accept shows the error
	}
	l.all = append(l.all, one)
}

func (l *listeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, one := range l.all {
		one.Close() //nolint:errcheck // it may have been closed before
	}
}
