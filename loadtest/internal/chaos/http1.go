package chaos

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// clientKind is how a client of HTTP/1 uses its connections.
type clientKind struct {
	name    string
	clients int // at each instance
	// requests on a connection before the client closes it; 0 is 1 to 60.
	requests int
	depth    int           // requests that are sent before a response is read; 0 is 1
	pieces   int           // most pieces of a request; 0 is 1
	pause    time.Duration // longest pause between two pieces
	reading  time.Duration // pause between two reads of a response
	http10   bool
}

// The pauses stay below server.read_timeout and server.write_timeout.
var clientKinds = []clientKind{
	{name: "keep-alive", clients: 6},
	{name: "a connection for each request", clients: 2, requests: 1},
	{name: "HTTP/1.0", clients: 1, http10: true},
	{name: "pipelined", clients: 3, depth: 8},
	{name: "in pieces", clients: 2, pieces: 6, pause: 15 * time.Millisecond},
	{name: "pipelined in pieces", clients: 2, depth: 4, pieces: 9, pause: 12 * time.Millisecond},
	{name: "uploads with pauses", clients: 1, pieces: 4, pause: 300 * time.Millisecond},
	{name: "reads slowly", clients: 1, reading: 40 * time.Millisecond},
}

// http1Conn is a client's connection.
type http1Conn struct {
	net.Conn
	st     *instance
	client string // whose it is
	in     *bufio.Reader
	served int // responses on it so far
}

// dial opens a connection to an instance.
func (r *run) dial(ctx context.Context, st *instance, protocol string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	if !st.encrypted {
		return d.DialContext(ctx, "tcp", st.addr)
	}
	config := st.tls.Clone()
	config.NextProtos = []string{protocol}
	return (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", st.addr)
}

// http1Client is a client of HTTP/1, until the context ends.
func (r *run) http1Client(ctx context.Context, st *instance, m clientKind, rnd *rand.Rand) {
	for ctx.Err() == nil {
		r.gate.RLock()
		err := r.useHTTP1(ctx, st, m, rnd)
		r.gate.RUnlock()
		if err != nil && ctx.Err() == nil {
			r.newConnectionEnded(st, nil, "%s: %v", m.name, err)
			r.sleep(ctx, time.Second)
		}
		r.think(ctx, rnd)
	}
}

// useHTTP1 opens a connection and sends requests on it until one side closes
// it, or clients pause.
func (r *run) useHTTP1(ctx context.Context, st *instance, m clientKind, rnd *rand.Rand) error {
	conn, err := r.dial(ctx, st, "http/1.1")
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	c := &http1Conn{Conn: conn, st: st, client: st.name + ", " + m.name, in: bufio.NewReaderSize(conn, 4096)}
	requests := m.requests
	if requests == 0 {
		requests = 1 + rnd.IntN(60)
	}
	for n := 0; n < requests && !r.paused() && ctx.Err() == nil; {
		asks := make([]*request, 1)
		if m.depth > 0 {
			asks = make([]*request, 1+rnd.IntN(m.depth))
		}
		for i := range asks {
			asks[i] = r.draw(c.client, rnd)
			asks[i].st = st
		}
		n += len(asks)
		if !r.exchange(c, m, rnd, asks) {
			return nil
		}
		r.think(ctx, rnd)
	}
	return nil
}

// exchange sends requests and judges their responses. It says whether the
// connection can be used again.
func (r *run) exchange(c *http1Conn, m clientKind, rnd *rand.Rand, asks []*request) bool {
	w := newWriting(asks, m.http10)
	go w.write(c, m, rand.New(rand.NewPCG(rnd.Uint64(), 0)))
	defer func() { <-w.done }() // the next request must not cross this one
	var last time.Time          // when the response before was read
	for i, a := range asks {
		stalled := r.stalled(c.st)
		first, p, closes, err := r.read(c, m, a)
		if err != nil {
			r.ended(asks[i:], c.served, err)
			c.Close()
			return false
		}
		c.served++
		// The clock of a request starts when adbuffer has read it, and the
		// response before it has been sent.
		if from := later(w.wholeAt(i), last); first.After(from) {
			p.took = first.Sub(from)
		}
		r.judge(a, p, r.stalled(c.st)-stalled, 0)
		last = time.Now()
		if closes {
			for _, rest := range asks[i+1:] {
				r.noResponse(rest, c.served, errors.New("behind Connection: close"))
			}
			c.Close()
			return false
		}
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ended judges requests whose connection ended with err after so many responses.
func (r *run) ended(asks []*request, served int, err error) {
	var cut *cutError
	var timeout net.Error
	switch {
	case errors.As(err, &cut):
		r.broken.add(mixed, "%v: the response was cut: %v", asks[0], err)
		asks, served = asks[1:], served+1
	case errors.As(err, &timeout) && timeout.Timeout():
		r.broken.add(late, "%v: no response: %v", asks[0], err)
		asks, served = asks[1:], served+1
	}
	for i, a := range asks {
		r.noResponse(a, served+i, err)
	}
}

// cutError says that a response began and did not end.
type cutError struct{ err error }

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// read reads the response to a, whose first byte came at first.
func (r *run) read(c *http1Conn, m clientKind, a *request) (first time.Time, p *response, closes bool, err error) {
	if err := r.await(c, a.deadline+r.options.Allowance+5*time.Second); err != nil {
		return first, nil, false, err
	}
	first = time.Now()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	in := c.in
	if m.reading > 0 {
		in = bufio.NewReaderSize(&pausing{in, m.reading}, 16<<10)
	}
	if p, err = readResponse(in, a.method); err != nil {
		return first, nil, false, &cutError{err}
	}
	return first, p, p.closes, nil
}

// readResponse reads a response, past interim ones.
func readResponse(in *bufio.Reader, method string) (*response, error) {
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("%d bytes of %d: %w", len(body), res.ContentLength, err)
		}
		if res.StatusCode >= 200 {
			return &response{status: res.StatusCode, header: res.Header, body: body, closes: res.Close}, nil
		}
	}
}

// await waits for the first byte of a response, and for as much longer as the
// machine takes.
func (r *run) await(c *http1Conn, wait time.Duration) error {
	began, stalled := time.Now(), r.stalled(c.st)
	for {
		_ = c.SetReadDeadline(began.Add(wait + r.stalled(c.st) - stalled))
		_, err := c.in.Peek(1)
		var timeout net.Error
		if err == nil || !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) > wait+r.stalled(c.st)-stalled {
			return err
		}
	}
}

// pausing reads with a pause before each read.
type pausing struct {
	r     io.Reader
	pause time.Duration
}

func (p *pausing) Read(b []byte) (int, error) {
	time.Sleep(p.pause)
	return p.r.Read(b)
}
