package sspsim

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	handshakeTimeout = 10 * time.Second
	// lingerTimeout is how long the SSP still reads a connection that it closes. Unread bytes would
	// cause a TCP RST, which can destroy the last response.
	lingerTimeout = time.Second
	lingerBytes   = 1 << 20 // the most bytes that the SSP reads then
)

// conn is one accepted connection. One goroutine reads it, the reader.
type conn struct {
	ssp *SSP
	id  uint64
	tcp *net.TCPConn
	rw  net.Conn // tcp, or TLS over it
	tls *tls.ConnectionState
	rng *rand.Rand // the reader's

	mu        sync.Mutex  // guards the fields below, and those of an HTTP/2 connection
	protocol  protocol    // nil before the connection serves requests
	closing   bool        // the SSP has sent its last byte, or has closed the connection
	busy      int         // requests that have begun and not ended
	lastUsed  time.Time   // when the last request ended
	idleTimer *time.Timer // runs closeIdle; nil until the first IdleTimeout
}

// protocol is what HTTP/1 and HTTP/2 do in their own way.
type protocol interface {
	// applyLocked puts the rules of p for connections in force.
	applyLocked(p *script)
	// retireLocked closes the connection because it is idle.
	retireLocked()
}

// handle runs one connection from accept to close.
func (s *SSP) handle(tcp *net.TCPConn) {
	c := s.track(tcp)
	if c == nil {
		_ = tcp.Close()
		return
	}
	defer s.untrack(c)
	p := s.plan.Load()
	if p.dice[faultHang].roll(c.rng) {
		s.countFault(faultHang)
		_, _ = io.Copy(io.Discard, tcp)
		return
	}
	if s.tls != nil && !c.handshake(p) {
		return
	}
	// A client of TLSHTTP2 that does not use ALPN must know the protocol.
	isHTTP2 := s.opts.Protocol == H2C || s.opts.Protocol == TLSHTTP2 || c.tls != nil && c.tls.NegotiatedProtocol == "h2"
	if isHTTP2 {
		newHTTP2Conn(c).serve()
		return
	}
	newHTTP1Conn(c).serve()
}

func (c *conn) handshake(p *script) bool {
	s := c.ssp
	cfg := s.tls
	if s.opts.Protocol == TLSAuto && p.dice[http1Only].roll(c.rng) {
		cfg = cfg.Clone()
		cfg.NextProtos = []string{"http/1.1"}
	}
	t := tls.Server(c.tcp, cfg)
	_ = c.tcp.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := t.Handshake(); err != nil {
		s.count(func(c *Counters) { c.HandshakeErrors++ })
		return false
	}
	_ = c.tcp.SetDeadline(time.Time{})
	state := t.ConnectionState()
	c.rw, c.tls = t, &state
	s.count(func(c *Counters) {
		c.Handshakes++
		if state.DidResume {
			c.Resumed++
		}
	})
	return true
}

// serveAs gives the connection its protocol, with the rules of the current behaviour.
func (c *conn) serveAs(p protocol) {
	c.mu.Lock()
	c.protocol = p
	c.mu.Unlock()
	c.apply()
}

// apply puts the current behaviour in force.
func (c *conn) apply() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.protocol == nil || c.closing {
		return
	}
	p := c.ssp.plan.Load()
	c.protocol.applyLocked(p)
	c.lastUsed = time.Now()
	idle := time.Duration(p.Connections.IdleTimeout)
	switch {
	case idle == 0: // closeIdle does nothing
	case c.idleTimer == nil:
		c.idleTimer = time.AfterFunc(idle, c.closeIdle)
	default:
		c.idleTimer.Reset(idle)
	}
}

// closeIdle closes the connection if it has been idle for the IdleTimeout, or starts the timer again.
func (c *conn) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := time.Duration(c.ssp.plan.Load().Connections.IdleTimeout)
	if idle == 0 || c.closing {
		return
	}
	left := idle - time.Since(c.lastUsed)
	if c.busy > 0 {
		left = idle
	}
	if left > 0 {
		c.idleTimer.Reset(left)
		return
	}
	c.ssp.count(func(c *Counters) { c.IdleClosed++ })
	c.protocol.retireLocked()
}

// beginLocked counts a request as in flight, and returns how many are. endLocked stops counting it.
func (c *conn) beginLocked() (inFlight int64) {
	c.busy++
	s, second := c.ssp, time.Now().Unix()
	s.count(func(c *Counters) {
		if s.second != second {
			s.second, s.inSecond = second, 0
		}
		s.inSecond++
		c.MaxPerSecond = max(c.MaxPerSecond, s.inSecond)
		c.Requests++
		c.InFlight++
		c.MaxInFlight = max(c.MaxInFlight, c.InFlight)
		inFlight = c.InFlight
	})
	return inFlight
}

func (c *conn) endLocked() {
	c.busy--
	c.lastUsed = time.Now()
	c.ssp.count(func(c *Counters) { c.InFlight-- })
}

// waitFor waits for d. It returns false if stop, which may be nil, or the SSP closed first.
func (s *SSP) waitFor(d time.Duration, stop <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-stop:
	case <-s.done:
	}
	return false
}

// closeLocked closes the sending half. Reads are possible for lingerTimeout more.
func (c *conn) closeLocked() {
	if c.closing {
		return
	}
	c.closing = true
	_ = c.rw.SetDeadline(time.Now().Add(lingerTimeout))
	if t, ok := c.rw.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	_ = c.tcp.CloseWrite()
}

// linger reads from r, which reads from c, after closeLocked. It discards the bytes.
func (c *conn) linger(r io.Reader) { _, _ = io.CopyN(io.Discard, r, lingerBytes) }

// reset closes the connection with a TCP RST.
func (c *conn) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}
