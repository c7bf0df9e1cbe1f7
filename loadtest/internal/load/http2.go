package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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

// open returns the connection.
func (c *http2Conn) open() (*http2.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.CanTakeNewRequest() {
		return c.conn, nil
	}
	raw, err := c.g.dial()
	if err != nil {
		return nil, err
	}
	if proto := raw.(*tls.Conn).ConnectionState().NegotiatedProtocol; proto != "h2" {
		raw.Close()
		return nil, &kindError{noConnect, errors.New("the target negotiated " + strconv.Quote(proto) + ", not h2")}
	}
	c.conn, err = c.transport.NewClientConn(raw)
	if err != nil {
		raw.Close()
		return nil, err
	}
	c.uses = 0
	return c.conn, nil
}

// use counts a request on the connection.
func (c *http2Conn) use() {
	c.mu.Lock()
	c.uses++
	reused := c.uses > 1
	c.mu.Unlock()
	if reused {
		c.g.count(func(n *Counts) { n.Reused++ })
	}
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
	_, err := s.conn.open()
	return err
}

func (s *http2Stream) close() { s.conn.close() }

func (s *http2Stream) run() {
	g := s.conn.g
	for {
		a, ok := g.next(func() {})
		if !ok {
			return
		}
		r, number := g.choose(a)
		if r == nil {
			continue
		}
		conn, err := s.conn.open()
		if err != nil {
			g.connectFailed(a, r.Class, err)
			continue
		}
		s.conn.use()
		resp, err := s.send(conn, r, number)
		if err != nil {
			g.failed(a, r.Class, kindOf(err))
			continue
		}
		now := g.now()
		g.rec.Received(int(a.phase), r.Class, number, resp, now-a.due, now)
	}
}

// send sends a request and reads its response, whose body is valid until the next call.
func (s *http2Stream) send(conn *http2.ClientConn, r *Request, number uint64) (out response, err error) {
	g := s.conn.g
	ctx, cancel := context.WithTimeout(g.stop, g.plan.Timeout)
	defer cancel()
	t := &g.plan.Templates[r.Class]
	u, err := url.Parse("https://" + g.plan.Host + Fill(r.Path, number))
	if err != nil {
		return out, err
	}
	req := (&http.Request{Method: t.Method, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	for _, f := range t.Headers {
		req.Header.Add(f.Name, Fill(f.Value, number))
	}
	if t.Method == "POST" {
		if t.JSON && req.Header.Get("Content-Type") == "" {
			req.Header.Set("Content-Type", "application/json")
		}
		body := Fill(string(r.Body), number)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	resp, err := conn.RoundTrip(req)
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
