package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"adbuffer/internal/wire/openrtb"
)

// http1Conn is a connection of HTTP/1.1.
type http1Conn struct{ *conn }

func (p *prober) openHTTP1(ctx context.Context, address string) (http1Conn, error) {
	c, err := p.open(ctx, address, func(t *tls.Config) { t.NextProtos = []string{"http/1.1"} })
	return http1Conn{c}, err
}

// exchange sends a request and reads its response. coding is the body's content coding, "" for none.
func (c http1Conn) exchange(body []byte, coding string) (*response, error) {
	start := c.beginExchange()
	req, err := c.send(body, coding)
	if err != nil {
		return nil, err
	}
	return c.read(req, start)
}

// pipeline sends n requests at once, and returns the responses that came.
func (c http1Conn) pipeline(body []byte, n int) (all []*response, err error) {
	start := c.beginExchange()
	var req *http.Request
	for range n {
		req, err = c.send(body, "")
		if err != nil {
			return nil, err
		}
	}
	for range n {
		r, err := c.read(req, start)
		if err != nil {
			return all, err
		}
		all = append(all, r)
		if r.closes {
			break
		}
	}
	return all, nil
}

func (c http1Conn) send(body []byte, coding string) (*http.Request, error) {
	if err := c.p.budget.take(); err != nil {
		return nil, err
	}
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, c.p.URL, bytes.NewReader(body)) //nolint:noctx // the connection has a deadline
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept-Encoding", cmp.Or(coding, "gzip"))
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if coding != "" {
		req.Header.Set("Content-Encoding", coding)
	}
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		return nil, err
	}
	_, err = c.Write(b.Bytes())
	return req, err
}

func (c http1Conn) read(req *http.Request, start time.Time) (*response, error) {
	res, err := http.ReadResponse(c.in, req)
	for err == nil && res.StatusCode < 200 {
		res, err = http.ReadResponse(c.in, req)
	}
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	r := &response{status: res.StatusCode, coding: res.Header.Get("Content-Encoding"), body: body, took: time.Since(start), closes: res.Close || len(body) > maxBody}
	r.decode()
	for part := range strings.SplitSeq(res.Header.Get("Keep-Alive"), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(part), "timeout="); ok {
			if n, err := strconv.ParseUint(text, 10, 16); err == nil {
				r.keepAlive = time.Duration(n) * time.Second
			}
		}
	}
	return r, nil
}

// decode decodes a body in gzip or zstd. A body that cannot be decoded stays.
func (r *response) decode() {
	coding := []byte(r.coding)
	if !openrtb.CanDecode(coding) {
		return
	}
	d := openrtb.AcquireDecoder()
	defer d.Release()
	if plain, err := d.Decode(coding, r.body, maxBody); err == nil {
		r.body = bytes.Clone(plain)
	}
}
