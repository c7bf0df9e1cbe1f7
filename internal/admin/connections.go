package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxConnections is how many connections to the admin listener may be open. Some paths need no
// token, and each connection holds an open file and 20 KB. Clients and SSPs need both too: half of
// the open files that deploy/README.md adds for adbuffer itself are for this listener.
const maxConnections = 64

// connections are the open connections. Beyond maxConnections, the connection that has had no
// request in progress for the longest time is closed. So idle connections cannot keep the operators
// and their tools away.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]*connection
	dropped atomic.Uint64 // closed to make room
}

// connection is an open connection. connections.mu guards its fields.
type connection struct {
	requests int       // in progress, which is one at most
	since    time.Time // the end of the last request; before the first one, when it was accepted
}

type connectionKey struct{}

// accept is http.Server.ConnContext. The server calls it before it uses the connection.
func (c *connections) accept(ctx context.Context, conn net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[net.Conn]*connection)
	}
	one := &connection{since: time.Now()}
	c.open[conn] = one
	if len(c.open) > maxConnections {
		c.dropLocked()
	}
	return context.WithValue(ctx, connectionKey{}, one)
}

// dropLocked closes one connection. That is the new one if all others have a request in progress.
func (c *connections) dropLocked() {
	var longest net.Conn
	for conn, one := range c.open {
		if one.requests == 0 && (longest == nil || one.since.Before(c.open[longest].since)) {
			longest = conn
		}
	}
	delete(c.open, longest)
	c.dropped.Add(1)
	if over, ok := longest.(interface{ NetConn() net.Conn }); ok {
		longest = over.NetConn() // the Close of TLS may wait for the client
	}
	longest.Close() //nolint:errcheck // an error changes nothing
}

// changed is http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, conn)
	}
}

// noteRequests notes for each connection when its requests begin and end.
func (c *connections) noteRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if one, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.begin(one)
			defer c.end(one)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connections) begin(one *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.requests++
}

func (c *connections) end(one *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.requests--
	one.since = time.Now()
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
