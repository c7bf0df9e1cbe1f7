package load

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// http1 is an HTTP/1 connection with Depth places. The goroutine of run sends, and another one reads. If
// the server closes the connection, the next request opens it again.
type http1 struct {
	g    *generator
	out  *bufio.Writer // only run uses it
	free chan struct{} // holds a value for each free place

	mu      sync.Mutex // guards the fields below
	conn    net.Conn   // nil is closed
	flights []flight   // requests without a response, oldest first
}

// flight is a request that was sent.
type flight struct {
	arrival
	sent   time.Time
	number uint64
	class  int
}

func newHTTP1(g *generator) *http1 {
	c := &http1{g: g, out: bufio.NewWriterSize(nil, 16<<10), free: make(chan struct{}, g.plan.Depth)}
	for range g.plan.Depth {
		c.free <- struct{}{}
	}
	return c
}

func (c *http1) connect() error {
	conn, err := c.g.dial()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	c.out.Reset(conn)
	go c.read(conn)
	if c.g.stop.Err() != nil {
		c.close() // the run ended meanwhile
	}
	return nil
}

func (c *http1) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *http1) run() {
	defer context.AfterFunc(c.g.stop, c.close)() // ends the reader, which frees the places
	for {
		c.takePlace()
		a, ok := c.g.next(c.flush)
		if !ok {
			c.free <- struct{}{}
			break
		}
		c.send(a)
	}
	c.flush()
	for range cap(c.free) { // the last responses have come
		<-c.free
	}
}

// takePlace waits for a free place.
func (c *http1) takePlace() {
	select {
	case <-c.free:
	default:
		c.flush()
		<-c.free
	}
}

// flush sends what is buffered. An error ends the reader too, which counts it.
func (c *http1) flush() { _ = c.out.Flush() }

// send buffers a request. It opens the connection if that is closed.
func (c *http1) send(a arrival) {
	r, number := c.g.choose(a)
	if r == nil {
		c.free <- struct{}{}
		return
	}
	f := flight{a, time.Now(), number, r.Class}
	for !c.launch(f) {
		if err := c.connect(); err != nil {
			c.g.connectFailed(a, r.Class, err)
			c.free <- struct{}{}
			return
		}
	}
	_, _ = c.out.Write(r.Append(c.out.AvailableBuffer(), number)) // as in flush
}

// launch lists a request as sent. It returns false if the connection is closed.
func (c *http1) launch(f flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return false
	}
	c.flights = append(c.flights, f)
	if len(c.flights) == 1 {
		c.expectOldest()
	}
	return true
}

// expectOldest sets the deadline of the oldest request. The caller holds mu.
func (c *http1) expectOldest() {
	var deadline time.Time
	if len(c.flights) > 0 {
		deadline = c.flights[0].sent.Add(c.g.plan.Timeout)
	}
	_ = c.conn.SetReadDeadline(deadline) // a closed connection has none
}

// land takes the oldest request. It closes the connection if this was its last response.
func (c *http1) land(last bool) (f flight, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flights) == 0 || c.conn == nil {
		return f, false
	}
	f, c.flights = c.flights[0], c.flights[:copy(c.flights, c.flights[1:])]
	if c.expectOldest(); last {
		c.conn.Close()
		c.conn = nil
	}
	return f, true
}

// watched remembers the error of a connection, by which a cut response differs from a malformed one.
type watched struct {
	net.Conn
	err error
}

func (w *watched) Read(b []byte) (n int, err error) {
	n, err = w.Conn.Read(b)
	w.err = err
	return n, err
}

// read reads the responses of a connection until it ends.
func (c *http1) read(conn net.Conn) {
	w := &watched{Conn: conn}
	in := bufio.NewReaderSize(w, maxHead)
	var resp fasthttp.Response
	for uses := 0; ; uses++ {
		if _, err := in.Peek(1); err != nil {
			c.broke(conn, kindOf(err), kindOf(err))
			return
		}
		if c.idle() {
			c.g.rec.Unsolicited(c.g.plan.phaseAt(c.g.now()))
			c.broke(conn, Closed, Closed)
			return
		}
		err := checkHeads(in)
		if err == nil {
			err = resp.Read(in)
		}
		if err != nil {
			first, others := badResponse, Closed
			if w.err != nil {
				first, others = kindOf(w.err), kindOf(w.err)
				if first == Closed || first == Reset {
					first = Cut
				}
			}
			c.broke(conn, first, others)
			return
		}
		last := resp.ConnectionClose() || c.g.plan.Protocol == Close
		f, ok := c.land(last)
		if !ok { // the run has ended
			c.failFlights(Closed, Closed)
			return
		}
		if uses > 0 {
			c.g.count(func(n *Counts) { n.Reused++ })
		}
		now := c.g.now()
		c.g.rec.Received(int(f.phase), f.class, f.number, response{status: resp.StatusCode(), body: resp.Body(),
			source: resp.Header.Peek("X-Adbuffer-Source"), echo: resp.Header.Peek("X-Echo-Cb")}, now-f.due, now)
		if last {
			c.failFlights(Closed, Closed)
		}
		c.free <- struct{}{}
		if last {
			return
		}
	}
}

// idle reports whether no request waits for a response.
func (c *http1) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights) == 0
}

// broke ends a connection. Its oldest request fails with an error of the kind first.
func (c *http1) broke(conn net.Conn, first, others string) {
	conn.Close()
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
		if len(c.flights) == 0 && first == Closed {
			c.g.count(func(n *Counts) { n.ClosedIdle++ })
		}
	}
	c.mu.Unlock()
	c.failFlights(first, others)
}

// failFlights fails all requests of a connection that has ended, and frees their places.
func (c *http1) failFlights(first, others string) {
	c.mu.Lock()
	flights := c.flights
	c.flights = nil
	c.mu.Unlock()
	for i, f := range flights {
		kind := others
		if i == 0 {
			kind = first
		}
		c.g.failed(f.arrival, f.class, kind)
		c.free <- struct{}{}
	}
}
