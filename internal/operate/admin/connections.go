package admin

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxConnections is how many connections to the admin listener may be open. The limit is low since some
// paths need no token, and each connection takes an open file and 20 KB, which connections to clients
// and SSPs need as well. Of the open files that deploy/README.md reserves for adbuffer itself, half are
// for this listener.
const maxConnections = 64

// connections holds the open connections. At maxConnections, a new connection closes another one: the
// connection that has waited longest for a whole request or, if all have a request in progress, the
// connection whose request has taken longest. So clients that hold connections open cannot lock out
// operators and their tools.
//
// netutil.LimitListener with short timeouts would not do, since it closes no connection: with 64 idle
// connections a scrape waited for 5 s, with 64 long requests for 60 s.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]*connection
	dropped atomic.Uint64 // closed to make room
}

// connection is an open connection. connections.mu guards its fields.
type connection struct {
	inProgress bool // a whole request has arrived, and its response has not ended
	// since is when inProgress last changed, or when the head of a request arrived after that. Before the
	// first request, it is when the connection was accepted.
	since time.Time
	// scrape is when the response to /metrics in progress was begun; zero if no such response is in progress.
	scrape time.Time
}

type connectionKey struct{}

// accept is http.Server.ConnContext. The server calls it before it uses the connection.
func (c *connections) accept(ctx context.Context, conn net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[net.Conn]*connection)
	}
	for len(c.open) >= maxConnections {
		var worst net.Conn
		for conn, one := range c.open {
			if worst == nil || one.makesRoomBefore(c.open[worst]) {
				worst = conn
			}
		}
		c.dropLocked(worst)
	}
	one := &connection{since: time.Now()}
	c.open[conn] = one
	return context.WithValue(ctx, connectionKey{}, one)
}

// dropScrape closes the connection whose response to /metrics was begun first. It returns false if no such
// response has been begun.
func (c *connections) dropScrape() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var longest net.Conn
	for conn, one := range c.open {
		if !one.scrape.IsZero() && (longest == nil || one.scrape.Before(c.open[longest].scrape)) {
			longest = conn
		}
	}
	if longest != nil {
		c.dropLocked(longest)
	}
	return longest != nil
}

// dropLocked closes a connection to make room for another one.
func (c *connections) dropLocked(conn net.Conn) {
	delete(c.open, conn)
	c.dropped.Add(1)
	if below := belowTLS(conn); below != nil {
		below.drop() // not Close of the tls.Conn, which may wait for the client
		return
	}
	conn.Close()
}

// belowTLS returns the socket below conn, or nil without TLS.
func belowTLS(conn net.Conn) *handshakeConn {
	if over, ok := conn.(*tls.Conn); ok {
		below, _ := over.NetConn().(*handshakeConn)
		return below
	}
	return nil
}

func (one *connection) makesRoomBefore(other *connection) bool {
	if one.inProgress != other.inProgress {
		return other.inProgress
	}
	return one.since.Before(other.since)
}

// changed is http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if below := belowTLS(conn); below != nil && state != http.StateNew { // the handshake has ended or failed
		below.end()
	}
	if state == http.StateClosed || state == http.StateHijacked {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, conn)
	}
}

// noteRequests records for each connection when its requests arrive and when they end.
func (c *connections) noteRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if one, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.note(one, r.Body == http.NoBody)
			defer c.note(one, false)
			r = r.WithContext(r.Context()) // copies r, since the server must keep its own Body
			r.Body = &arrivingBody{r.Body, func() { c.note(one, true) }}
		}
		next.ServeHTTP(w, r)
	})
}

// arrivingBody calls arrived when the end of the body has been read, possibly more than once.
type arrivingBody struct {
	io.ReadCloser
	arrived func()
}

func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.arrived()
	}
	return n, err
}

func (c *connections) note(one *connection, inProgress bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.inProgress, one.since = inProgress, time.Now()
}

func (c *connections) noteScrape(one *connection, begun time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.scrape = begun
}
