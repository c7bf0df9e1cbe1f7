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

// clientKind is how an HTTP/1 client uses its connections.
type clientKind struct {
	name    string
	clients int // at each instance
	// requests is how many requests a client sends on one connection. 0 means a random number from 1 to 60.
	requests int
	depth    int           // the most requests sent before a response is read; 0 means 1
	pieces   int           // the most pieces of a request; 0 means 1
	pause    time.Duration // the longest pause between two pieces
	reading  time.Duration // the pause between two reads of a response
	http10   bool
}

// The pauses are below server.read_timeout and server.write_timeout. The pauses of a head are below a second in all:
// an attack takes all places within a second, and then the head that has been arriving for longest makes room.
var clientKinds = []clientKind{
	{name: "keep-alive", clients: 6},
	{name: "a connection for each request", clients: 2, requests: 1},
	{name: "HTTP/1.0", clients: 1, http10: true},
	{name: "pipelined", clients: 3, depth: 8},
	{name: "in pieces", clients: 2, pieces: 6, pause: 15 * time.Millisecond},
	{name: "pipelined in pieces", clients: 2, depth: 4, pieces: 9, pause: 12 * time.Millisecond},
	{name: "uploads with pauses", clients: 1, pieces: 4, pause: 250 * time.Millisecond},
	{name: "reads slowly", clients: 1, reading: 40 * time.Millisecond},
}

// http1Conn is a client's connection.
type http1Conn struct {
	net.Conn
	st     *instance
	in     *bufio.Reader
	served int // responses so far
}

// honest returns a dialer with one of the many addresses of honest clients.
func honest(rnd *rand.Rand) net.Dialer { return dialer(net.IPv4(127, 0, 1, byte(rnd.IntN(256)))) }

func dialer(from net.IP) net.Dialer {
	return net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: from}}
}

// maxHandshake is how long the TCP and TLS handshakes of an honest client may take.
const maxHandshake = 2 * time.Second

// dial opens a connection to an instance. Its error names the kind of client. If protocol is "", dial does no TLS
// handshake.
func (r *run) dial(ctx context.Context, st *instance, d net.Dialer, kind, protocol string) (conn net.Conn, err error) {
	began, stalled := time.Now(), st.stalls.total()
	if st.encrypted && protocol != "" {
		config := st.tls.Clone()
		config.NextProtos = []string{protocol}
		conn, err = (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", st.addr)
	} else {
		conn, err = d.DialContext(ctx, "tcp", st.addr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: connecting: %w", kind, err)
	}
	r.judgeHandshake(st, kind, began, st.stalls.total()-stalled)
	return conn, nil
}

// judgeHandshake judges how long a client has waited for its connection.
func (r *run) judgeHandshake(st *instance, kind string, began time.Time, stalled time.Duration) {
	if took := time.Since(began) - stalled; kind != hostileKind && took > max(maxHandshake, r.options.patience) && !st.starved() {
		r.broken.add(greeted, "%s: %s: %v, without %v in which the machine stood still", st.name, kind, took, stalled)
	}
}

func (r *run) useHTTP1(ctx context.Context, st *instance, m clientKind, rnd *rand.Rand) error {
	conn, err := r.dial(ctx, st, honest(rnd), m.name, "http/1.1")
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &http1Conn{Conn: conn, st: st, in: bufio.NewReaderSize(conn, 4096)}
	requests := m.requests
	if requests == 0 {
		requests = 1 + rnd.IntN(60)
	}
	for n := 0; n < requests && !r.pausing.Load() && ctx.Err() == nil; {
		asks := r.drawAll(1+rnd.IntN(max(1, m.depth)), st, m.name, rnd)
		n += len(asks)
		if !r.exchange(c, m, rnd, asks) {
			break
		}
		r.think(ctx, rnd)
	}
	return nil
}

// exchange sends requests and judges their responses. It reports whether the connection can be
// used again.
func (r *run) exchange(c *http1Conn, m clientKind, rnd *rand.Rand, asks []*request) bool {
	w := newWriting(asks, m.http10)
	go w.write(c, m, rand.New(rand.NewPCG(rnd.Uint64(), 0)))
	reusable := r.responses(c, m, asks, w.wholeAt)
	if !reusable {
		c.Close()
	}
	<-w.done // the next requests must not be written in between
	return reusable
}

// responses reads and judges the responses to requests in their order. wholeAt is that of their writing. responses
// reports whether the connection can be used again.
func (r *run) responses(c *http1Conn, m clientKind, asks []*request, wholeAt func() time.Time) bool {
	var last time.Time // when the previous response was read
	for i, a := range asks {
		stalled := c.st.stalls.total()
		first, p, err := r.read(c, m, a)
		if err != nil {
			r.ended(asks[i:], c.served, err)
			return false
		}
		c.served++
		// The clock of a request starts when adbuffer has read the request and has sent the
		// previous response. The later requests, sent in pieces, arrive within the allowance.
		p.took = max(0, min(first.Sub(wholeAt()), first.Sub(last)))
		r.judge(a, p, c.st.stalls.total()-stalled, 0)
		last = time.Now()
		if p.closes {
			for _, rest := range asks[i+1:] {
				r.noResponse(rest, c.served, errors.New("after Connection: close"))
			}
			return false
		}
	}
	return true
}

// ended judges requests whose connection ended with err after it had served as many responses.
func (r *run) ended(asks []*request, served int, err error) {
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		r.broken.add(mixed, "%v: the response was cut: %v", asks[0], err)
		asks, served = asks[1:], served+1
	case timedOut(err):
		r.broken.add(late, "%v: no response: %v", asks[0], err)
		asks, served = asks[1:], served+1
	}
	for i, a := range asks {
		r.noResponse(a, served+i, err)
	}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// cutError is the error of a response that began and remained incomplete.
type cutError struct{ err error }

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// read reads the response to a. first is when its first byte came.
func (r *run) read(c *http1Conn, m clientKind, a *request) (first time.Time, p *response, err error) {
	if err := r.await(c, a.deadline+allowance+5*time.Second); err != nil {
		return first, nil, err
	}
	first = time.Now()
	_ = c.SetReadDeadline(first.Add(30 * time.Second))
	in := c.in
	if m.reading > 0 {
		in = bufio.NewReaderSize(&pausing{in, m.reading}, 16<<10)
	}
	p, err = readResponse(in, a.method)
	if err != nil {
		err = &cutError{err}
	}
	return first, p, err
}

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

// await waits for the first byte of a response. Stalls of the machine extend the wait.
func (r *run) await(c *http1Conn, wait time.Duration) error {
	end := time.Now().Add(wait - c.st.stalls.total())
	for {
		_ = c.SetReadDeadline(end.Add(c.st.stalls.total()))
		_, err := c.in.Peek(1)
		if err == nil || !timedOut(err) || time.Now().After(end.Add(c.st.stalls.total())) {
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
