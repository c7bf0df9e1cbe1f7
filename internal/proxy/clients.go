package proxy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// clients are the open connections of clients, for a drain.
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

// list returns the connections that are open now.
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

// closeIdle closes parked connections and unfinished greetings, and drains connections
// of HTTP/2. A parked connection on which a request has arrived stays: its goroutine is
// about to find the request. The server's idle connections are parked within 200 ms.
func (c *clients) closeIdle() {
	for _, cc := range c.list() {
		cc.mu.Lock()
		switch {
		case cc.http2 != nil:
			cc.http2.Drain()
		case cc.phase == parked && !cc.HasCome(), cc.phase == connecting && cc.greeting.needed:
			cc.closeLocked() //nolint:errcheck // the connection is over
		}
		cc.mu.Unlock()
	}
}

// cutAll closes all sockets. The server then closes the connections.
func (c *clients) cutAll() {
	for _, cc := range c.list() {
		cc.Conn.Close() //nolint:errcheck // the connection is over
	}
}

// awaitFirstRequests waits until each client that connected within the last second has
// sent a byte of a request, or has left, or ctx ends. A client that has just connected is
// about to send a request, and cannot know that its connection will be closed. No
// connection is accepted any more.
func (p *Proxy) awaitFirstRequests(ctx context.Context) {
	tick := time.NewTicker(firstRequestPoll)
	defer tick.Stop()
	for p.clients.unheard(time.Now().Add(-firstRequestWait)) {
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

// unheard reports whether a client that connected after since has not sent a byte of a
// request yet.
func (c *clients) unheard(since time.Time) bool {
	return slices.ContainsFunc(c.list(), func(cc *clientConn) bool { return !cc.heard.Load() && cc.opened.After(since) })
}
