package proxy

import (
	"net"
	"sync"
	"time"
)

// listener wraps accepted connections, and refuses those over max_connections.
type listener struct {
	net.Listener
	proxy *Proxy
}

// maxRefusing bounds the connections that are being told that there are too
// many; beyond it they are closed without a word, and counted all the same.
const maxRefusing = 64

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	p := l.proxy
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := p.current()
		if p.open.Add(1) <= int64(g.opts.MaxConnections) {
			return p.newClient(c, g.opts.TLS != nil), nil
		}
		p.open.Add(-1)
		p.refuseConnection(c, g)
	}
}

// refuseConnection answers a connection over the limit, and closes it once the
// client has had time to read that: closing with unread bytes would reset it.
func (p *Proxy) refuseConnection(c net.Conn, g *generation) {
	f, id := g.tooManyConnections(), g.newRequestID()
	g.ended(nil, f.outcome, 0)
	p.reportUnread(g, peerOf(c), id, f)
	if g.opts.TLS != nil {
		c.Close() //nolint:errcheck // an answer would cost a handshake
		return
	}
	if header, ok := c.(proxied); ok {
		c = header.NetConn()
	}
	if p.refused.Add(1) > maxRefusing {
		p.refused.Add(-1)
		c.Close() //nolint:errcheck // it is refused either way
		return
	}
	go func() {
		defer p.refused.Add(-1)
		defer c.Close()                                            //nolint:errcheck // as above
		c.SetDeadline(time.Now().Add(refuseWithin))                //nolint:errcheck // a closed socket fails the write
		if _, err := c.Write(g.wholeResponse(f, id)); err != nil { //nolint:gocritic // nothing else to do
			return
		}
		if t, ok := c.(interface{ CloseWrite() error }); ok {
			t.CloseWrite() //nolint:errcheck // the read below ends anyway
		}
		var drop [512]byte
		for n := 0; n < g.opts.MaxHeaderBytes; {
			m, err := c.Read(drop[:])
			if err != nil {
				return
			}
			n += m
		}
	}()
}

const refuseWithin = 200 * time.Millisecond

// listeners are those that Serve was given, to be closed at the end of a drain.
type listeners struct {
	mu  sync.Mutex
	all []net.Listener
}

func (l *listeners) add(one net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
}

func (l *listeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		one.Close() //nolint:errcheck // it may have been closed before
	}
}

// clients are the open connections, to be cut at the end of a drain.
type clients struct {
	mu  sync.Mutex
	all map[*clientConn]struct{}
}

func (c *clients) add(cc *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[*clientConn]struct{})
	}
	c.all[cc] = struct{}{}
}

func (c *clients) remove(cc *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, cc)
}

// list returns those that are open now.
func (c *clients) list() []*clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*clientConn, 0, len(c.all))
	for cc := range c.all {
		all = append(all, cc)
	}
	return all
}

func (c *clients) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) == 0
}

// cutAll ends what the server does with them; it closes them then.
func (c *clients) cutAll() {
	for _, cc := range c.list() {
		cc.Conn.Close() //nolint:errcheck // nothing is left to be done about it
	}
}
