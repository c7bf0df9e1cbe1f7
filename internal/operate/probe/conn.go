package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/handshake"
)

const (
	maxBody = 1 << 20 // bytes of a response's body
	// maxExchange bounds the bytes that one exchange reads: a body, its framing and its header.
	maxExchange = maxBody + 256<<10
)

// userAgent is the field User-Agent of all requests.
const userAgent = "adbuffer-probe"

// conn is an open connection.
type conn struct {
	net.Conn
	p                  *prober
	in                 *bufio.Reader
	protocol           string // the protocol that ALPN chose; "" = none
	connect, handshake time.Duration
	bytesLeft          int // how many more bytes the current exchange may read
	closed             sync.Once
	unwatch            func() bool
}

// open opens a connection, which counts in the budget until Close. change, which may be nil, changes the
// configuration of TLS.
func (p *prober) open(ctx context.Context, address string, change func(*tls.Config)) (*conn, error) {
	if err := p.budget.acquire(ctx); err != nil {
		return nil, err
	}
	c := &conn{p: p}
	start := time.Now()
	raw, err := p.dial(ctx, "tcp", address)
	if err != nil {
		p.budget.release()
		return nil, err
	}
	c.Conn, c.connect = raw, time.Since(start)
	c.unwatch = context.AfterFunc(ctx, func() { raw.Close() })
	if p.target.Scheme == "https" {
		config := &tls.Config{ServerName: p.target.Hostname(), NextProtos: []string{"h2", "http/1.1"}, RootCAs: p.Authorities, InsecureSkipVerify: p.Insecure}
		if change != nil {
			change(config)
		}
		secure := tls.Client(raw, handshake.VerifyServer(config))
		raw.SetDeadline(time.Now().Add(p.Timeout))
		start = time.Now()
		if err := secure.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, err
		}
		c.Conn, c.handshake, c.protocol = secure, time.Since(start), secure.ConnectionState().NegotiatedProtocol
	}
	c.in, c.bytesLeft = bufio.NewReader(bounded{c}), maxExchange
	return c, nil
}

// bounded reads from a connection, but no more bytes than the current exchange may read.
type bounded struct{ *conn }

func (b bounded) Read(p []byte) (int, error) {
	if b.bytesLeft <= 0 {
		return 0, fmt.Errorf("a response has more than %d bytes", maxExchange)
	}
	n, err := b.Conn.Read(p[:min(len(p), b.bytesLeft)])
	b.bytesLeft -= n
	return n, err
}

// beginExchange sets the deadline of an exchange and the bytes that it may read, and returns the current time.
func (c *conn) beginExchange() time.Time {
	now := time.Now()
	c.bytesLeft = maxExchange
	c.SetDeadline(now.Add(c.p.Timeout))
	return now
}

// Close closes the connection once.
func (c *conn) Close() error {
	c.closed.Do(func() {
		c.unwatch()
		c.Conn.Close()
		c.p.budget.release()
	})
	return nil
}

// idleFor returns how long the connection is idle until the SSP closes it or sends a byte. It returns 0 if the SSP
// does neither within limit.
func (c *conn) idleFor(limit time.Duration) time.Duration {
	start := time.Now()
	c.bytesLeft = maxExchange
	c.SetDeadline(start.Add(limit))
	_, err := c.in.ReadByte()
	if took := time.Since(start); took < limit && !isTimeout(err) {
		return took
	}
	return 0
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// isClose reports whether an exchange failed because the SSP has closed the connection.
func isClose(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errCloses)
}

// errCloses is the error of a request on a connection on which the SSP accepts no further requests.
var errCloses = errors.New("the SSP closes the connection")

// response is the response to one request.
type response struct {
	status    int
	coding    string // Content-Encoding
	body      []byte // decoded
	took      time.Duration
	keepAlive time.Duration // of the field Keep-Alive
	closes    bool          // the SSP closes the connection now
}

// noBid returns the form of a response without a bid, "" for an ad and for anything else.
func (r *response) noBid() NoBid {
	switch {
	case r.status == http.StatusNoContent:
		return NoContent
	case r.status >= 300:
		return ""
	case len(bytes.TrimSpace(r.body)) == 0:
		return EmptyBody
	case bytes.Contains(r.body, []byte("<VAST")):
		if ssp.NoBidVAST.IsNoBid(r.body) {
			return VAST
		}
	case ssp.NoBidOpenRTB.IsNoBid(r.body):
		return OpenRTB
	}
	return ""
}
