package load

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// client has a connection of HTTP/1 with Depth places. The goroutine of run sends requests, and another goroutine
// reads responses. If the server closes the connection, the next request opens a new connection.
type client struct {
	g    *generator
	out  *bufio.Writer // only run uses it
	used chan struct{} // holds a value for each place in use
	conn *clientConn   // the last connection
}

// clientConn is a connection and its requests.
type clientConn struct {
	net.Conn

	mu      sync.Mutex // guards the fields below
	ended   bool       // no request may be sent
	flights []flight   // requests without a response, oldest first
}

func newClient(g *generator) *client {
	return &client{g: g, out: bufio.NewWriterSize(nil, 16<<10), used: make(chan struct{}, g.plan.Depth)}
}

func (c *client) connect() error {
	conn, err := c.g.dial()
	if err != nil {
		return err
	}
	c.conn = &clientConn{Conn: conn}
	c.out.Reset(conn)
	go c.read(c.conn)
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// run sends requests until there are no more, and returns after their responses.
func (c *client) run() {
	for {
		c.takePlace()
		a, ok := c.g.next(c.flush)
		if !ok {
			<-c.used
			break
		}
		c.send(a)
	}
	c.flush()
	for range cap(c.used) { // a place is free once its response has come
		c.used <- struct{}{}
	}
}

func (c *client) takePlace() {
	select {
	case c.used <- struct{}{}:
	default:
		c.flush()
		c.used <- struct{}{}
	}
}

// flush sends the buffered requests. An error also ends the reader, which counts the requests as failed.
func (c *client) flush() { _ = c.out.Flush() }

// send buffers a request. It opens a connection if the last one has ended.
func (c *client) send(a arrival) {
	f, ok := c.g.begin(a)
	if !ok {
		<-c.used
		return
	}
	for c.conn == nil || !c.conn.launch(f, c.g.plan.Timeout) {
		if err := c.connect(); err != nil {
			c.g.connectFailed(f, err)
			<-c.used
			return
		}
	}
	_, _ = c.out.Write(f.append(c.out.AvailableBuffer(), f.number)) // as in flush
}

// launch lists a request as sent. It returns false if the connection has ended.
func (c *clientConn) launch(f flight, timeout time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.flights = append(c.flights, f)
	if len(c.flights) == 1 {
		c.awaitOldestLocked(timeout)
	}
	return true
}

// awaitOldestLocked sets the deadline of the oldest request.
func (c *clientConn) awaitOldestLocked(timeout time.Duration) {
	var deadline time.Time
	if len(c.flights) > 0 {
		deadline = c.flights[0].sent.Add(timeout)
	}
	_ = c.SetReadDeadline(deadline) // a closed connection has none
}

// land removes and returns the oldest request, whose response has come. After the last response of the connection,
// no more requests may be sent.
func (c *clientConn) land(last bool, timeout time.Duration) flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[0]
	c.flights = c.flights[:copy(c.flights, c.flights[1:])]
	c.awaitOldestLocked(timeout)
	c.ended = c.ended || last
	return f
}

// end closes a connection and returns its requests without a response.
func (c *clientConn) end() []flight {
	c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.flights
}

func (c *clientConn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights) == 0
}

func (c *client) read(conn *clientConn) {
	defer context.AfterFunc(c.g.stop, func() { conn.Close() })()
	in := bufio.NewReaderSize(conn, 64<<10)
	var resp fasthttp.Response
	for {
		if _, err := in.Peek(1); err != nil {
			kind := kindOf(err)
			c.fail(conn.end(), kind, kind)
			return
		}
		if conn.idle() {
			c.g.rec.unsolicited(c.g.plan.phaseAt(c.g.now()))
			c.fail(conn.end(), Closed, Closed)
			return
		}
		if err := resp.Read(in); err != nil {
			first, others := kindsWithin(err)
			c.fail(conn.end(), first, others)
			return
		}
		last := resp.ConnectionClose() || c.g.plan.Protocol == Close
		f := conn.land(last, c.g.plan.Timeout)
		c.g.rec.received(f, response{status: resp.StatusCode(), body: resp.Body(),
			source: resp.Header.Peek("X-Adbuffer-Source"), echo: resp.Header.Peek("X-Echo-Cb")}, c.g.now())
		if last {
			c.fail(conn.end(), Closed, Closed)
			<-c.used
			return
		}
		<-c.used
	}
}

// fail fails the requests of a connection that has ended, and frees their places. The oldest one fails with
// an error of the kind first.
func (c *client) fail(flights []flight, first, others string) {
	for i, f := range flights {
		kind := others
		if i == 0 {
			kind = first
		}
		c.g.failed(f, kind)
		<-c.used
	}
}
