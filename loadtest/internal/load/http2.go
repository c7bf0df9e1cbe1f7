package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
)

// http2Conn is an HTTP/2 connection that several streams share. It dials again after the peer has sent
// GOAWAY.
type http2Conn struct {
	g         *generator
	transport http2.Transport

	mu   sync.Mutex // guards the fields below; held while dialling, because all streams wait for the connection
	conn *http2.ClientConn
	uses int
}

// open returns the connection, for one more request.
func (c *http2Conn) open() (*http2.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || !c.conn.CanTakeNewRequest() {
		if err := c.dialLocked(); err != nil {
			return nil, err
		}
	}
	c.uses++
	if c.uses > 1 {
		c.g.rec.count(func(n *Counts) { n.Reused++ })
	}
	return c.conn, nil
}

func (c *http2Conn) dialLocked() error {
	raw, err := c.g.dial()
	if err != nil {
		return err
	}
	if proto := raw.(*tls.Conn).ConnectionState().NegotiatedProtocol; proto != "h2" {
		raw.Close()
		return &kindError{noConnect, errors.New("the target negotiated " + strconv.Quote(proto) + ", not h2")}
	}
	c.conn, err = c.transport.NewClientConn(raw)
	if err != nil {
		raw.Close()
	}
	c.uses = 0
	return err
}

func (c *http2Conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// http2Stream sends one request at a time on a connection.
type http2Stream struct {
	conn *http2Conn
	body bytes.Buffer
}

func (s *http2Stream) connect() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.conn != nil {
		return nil // another stream has opened it
	}
	return s.conn.dialLocked()
}

func (s *http2Stream) close() { s.conn.close() }

func (s *http2Stream) run() {
	g := s.conn.g
	for {
		a, ok := g.next(func() {})
		if !ok {
			return
		}
		f, ok := g.begin(a)
		if !ok {
			continue
		}
		conn, err := s.conn.open()
		if err != nil {
			g.connectFailed(f, err)
			continue
		}
		resp, err := s.send(conn, f)
		if err != nil {
			g.failed(f, kindOf(err))
			continue
		}
		g.rec.received(f, resp, g.now())
	}
}

// send sends a request and reads its response, whose body is valid until the next call.
func (s *http2Stream) send(conn *http2.ClientConn, f flight) (out response, err error) {
	g := s.conn.g
	ctx, cancel := context.WithTimeout(g.stop, g.plan.Timeout)
	defer cancel()
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(f.append(nil, f.number))))
	if err != nil {
		return out, err
	}
	req.URL.Scheme, req.URL.Host = "https", req.Host
	resp, err := conn.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	s.body.Reset()
	if _, err := s.body.ReadFrom(resp.Body); err != nil {
		return out, &kindError{Cut, err}
	}
	return response{status: resp.StatusCode, body: s.body.Bytes(), source: []byte(resp.Header.Get("X-Adbuffer-Source")),
		echo: []byte(resp.Header.Get("X-Echo-Cb"))}, nil
}
