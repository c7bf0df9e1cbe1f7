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

// http2Conn is an HTTP/2 connection with Depth streams. It dials again after the peer has sent GOAWAY.
type http2Conn struct {
	g         *generator
	transport http2.Transport

	mu   sync.Mutex // guards the fields below; held while dialling, because all streams wait for the connection
	conn *http2.ClientConn
	uses int
}

func (c *http2Conn) connect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connectLocked()
}

func (c *http2Conn) connectLocked() error {
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

// open returns the connection, for one more request.
func (c *http2Conn) open() (*http2.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || !c.conn.CanTakeNewRequest() {
		if err := c.connectLocked(); err != nil {
			return nil, err
		}
	}
	c.uses++
	if c.uses > 1 {
		c.g.rec.count(func(n *Counts) { n.Reused++ })
	}
	return c.conn, nil
}

func (c *http2Conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}

func (c *http2Conn) run() {
	var streams sync.WaitGroup
	for range c.g.plan.Depth {
		streams.Go(c.stream)
	}
	streams.Wait()
}

func (c *http2Conn) stream() {
	var body bytes.Buffer
	for {
		a, ok := c.g.next(func() {})
		if !ok {
			return
		}
		f, ok := c.g.begin(a)
		if !ok {
			continue
		}
		conn, err := c.open()
		if err != nil {
			c.g.connectFailed(f, err)
			continue
		}
		resp, err := c.send(conn, f, &body)
		if err != nil {
			c.g.failed(f, kindOf(err))
			continue
		}
		c.g.rec.received(f, resp, c.g.now())
	}
}

// send sends a request and reads its response, whose body is in body.
func (c *http2Conn) send(conn *http2.ClientConn, f flight, body *bytes.Buffer) (out response, err error) {
	ctx, cancel := context.WithTimeout(c.g.stop, c.g.plan.Timeout)
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
	body.Reset()
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return out, &kindError{Cut, err}
	}
	return response{status: resp.StatusCode, body: body.Bytes(), source: []byte(resp.Header.Get("X-Adbuffer-Source")),
		echo: []byte(resp.Header.Get("X-Echo-Cb"))}, nil
}
