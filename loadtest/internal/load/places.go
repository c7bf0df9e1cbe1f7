package load

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// places returns one place for each worker.
func (w *workers) places() []place {
	var out []place
	for range w.plan.Connections {
		if w.plan.Protocol != HTTP2 {
			out = append(out, &tlsPlace{w: w})
			continue
		}
		shared := &h2Conn{w: w, transport: &http2.Transport{}}
		for range w.plan.Depth {
			out = append(out, &h2Place{conn: shared})
		}
	}
	return out
}

// tlsPlace is an HTTP/1 connection over TLS.
type tlsPlace struct {
	w      *workers
	conn   *tls.Conn
	uses   int
	out    []byte
	in     []byte
	parser Parser
}

func (p *tlsPlace) connect(deadline time.Time) (err error) {
	if p.conn == nil {
		p.conn, err = p.w.dialTLS(deadline)
		p.uses, p.in, p.parser = 0, p.in[:0], Parser{}
	}
	return err
}

func (p *tlsPlace) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

func (p *tlsPlace) do(r *Request, number uint64, deadline time.Time) (*Response, error) {
	if err := p.connect(deadline); err != nil {
		return nil, err
	}
	a, err := p.exchange(r, number, deadline)
	if err != nil || a.Close || p.w.plan.Protocol == Close {
		p.close()
	}
	if err == nil {
		if p.uses++; p.uses > 1 {
			p.w.count(func(c *Counts) { c.Reused++ })
		}
	}
	return a, err
}

func (p *tlsPlace) exchange(r *Request, number uint64, deadline time.Time) (*Response, error) {
	_ = p.conn.SetDeadline(deadline)
	p.out = r.Append(p.out[:0], number)
	if _, err := p.conn.Write(p.out); err != nil {
		return nil, err
	}
	if cap(p.in) == 0 {
		p.in = make([]byte, 0, 16<<10)
	}
	for {
		if len(p.in) == cap(p.in) {
			p.in = append(p.in, 0)[:len(p.in)]
		}
		n, err := p.conn.Read(p.in[len(p.in):cap(p.in)])
		p.in = p.in[:len(p.in)+n]
		if n > 0 {
			used, done, err := p.parser.Next(p.in)
			if err != nil {
				return nil, &kindError{badResponse, err}
			}
			p.in = p.in[:copy(p.in, p.in[used:])]
			if done && len(p.in) > 0 {
				return nil, &kindError{unsolicited, errors.New("bytes after the response")}
			}
			if done {
				return &p.parser.Response, nil
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && p.parser.EndsWithConnection() {
				return &p.parser.Response, nil
			}
			if p.parser.Started() {
				return nil, &kindError{Cut, err}
			}
			return nil, err
		}
	}
}

// h2Conn is an HTTP/2 connection that several places share. It dials again after the peer has sent
// GOAWAY.
type h2Conn struct {
	w         *workers
	transport *http2.Transport

	mu   sync.Mutex // guards the fields below; held while dialling, because all places wait for the connection
	conn *http2.ClientConn
	uses int
}

func (c *h2Conn) get(deadline time.Time) (*http2.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.CanTakeNewRequest() {
		return c.conn, nil
	}
	raw, err := c.w.dialTLS(deadline)
	if err != nil {
		return nil, err
	}
	if proto := raw.ConnectionState().NegotiatedProtocol; proto != "h2" {
		raw.Close()
		return nil, &kindError{noConnect, errors.New("the target negotiated " + strconv.Quote(proto) + ", not h2")}
	}
	_ = raw.SetDeadline(time.Time{})
	if c.conn, err = c.transport.NewClientConn(raw); err != nil {
		raw.Close()
		return nil, err
	}
	c.uses = 0
	return c.conn, nil
}

// use counts a request on the connection.
func (c *h2Conn) use() {
	c.mu.Lock()
	c.uses++
	reused := c.uses > 1
	c.mu.Unlock()
	if reused {
		c.w.count(func(n *Counts) { n.Reused++ })
	}
}

func (c *h2Conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// h2Place is one place of an HTTP/2 connection: one stream at a time.
type h2Place struct {
	conn     *h2Conn
	response Response
	buf      []byte
}

func (p *h2Place) connect(deadline time.Time) error {
	_, err := p.conn.get(deadline)
	return err
}

func (p *h2Place) close() { p.conn.close() }

func (p *h2Place) do(r *Request, number uint64, deadline time.Time) (*Response, error) {
	conn, err := p.conn.get(deadline)
	if err != nil {
		return nil, err
	}
	p.conn.use()
	ctx, cancel := context.WithDeadline(p.conn.w.stop, deadline)
	defer cancel()
	t := &p.conn.w.plan.Templates[r.Class]
	u, err := url.Parse("https://" + p.conn.w.plan.Host + Fill(r.Path, number))
	if err != nil {
		return nil, err
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
		return nil, err
	}
	defer resp.Body.Close()
	p.response = Response{Status: resp.StatusCode, Echo: []byte(resp.Header.Get("X-Echo-Cb")), Source: []byte(resp.Header.Get("X-Adbuffer-Source"))}
	if p.buf == nil {
		p.buf = make([]byte, 16<<10)
	}
	for {
		n, err := resp.Body.Read(p.buf)
		if p.response.Body < numberDigits {
			copy(p.response.Start[p.response.Body:], p.buf[:n])
		}
		p.response.Body += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return &p.response, nil
		case err != nil:
			return nil, &kindError{Cut, err}
		}
	}
}
