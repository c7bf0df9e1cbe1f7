package sspsim

import (
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	handshakeTimeout = 10 * time.Second
	// lingerTimeout is how long the SSP still reads a connection that it closes. Unread bytes would
	// cause a TCP RST, which can destroy the last response.
	lingerTimeout = time.Second
	lingerBytes   = 1 << 20 // how many bytes it reads at most during lingerTimeout
)

// errIdle ends a connection that has been idle for IdleTimeout.
var errIdle = errors.New("sspsim: idle timeout")

// conn is one accepted connection. One goroutine reads it, the reader. It also applies the idle
// rules whenever a read has to wait.
type conn struct {
	ssp *SSP
	id  uint64
	tcp *net.TCPConn
	rw  net.Conn // tcp, or TLS over it
	tls *tls.ConnectionState
	rng *rand.Rand // the reader's

	plan   *script       // the behaviour whose rules set the read deadline; the reader's
	onPlan func(*script) // the reader calls it when the behaviour changes; may be nil
	poison func()        // writes the unsolicited response; the reader calls it

	serving  atomic.Bool  // the connection is read through Read, so that a past deadline wakes the reader
	closing  atomic.Bool  // the SSP has sent its last byte
	pokes    atomic.Int64 // how often the reader was woken
	busy     atomic.Int32 // requests that have begun and not ended
	lastUsed atomic.Int64 // when the last request ended, in ns since the epoch; kept with an IdleTimeout
	poisonAt atomic.Int64 // when the unsolicited response is due, in ns since the epoch; 0: none
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
	c.serving.Store(true)
	if isHTTP2 {
		s.count(func(c *Counters) { c.HTTP2Connections++ })
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

// Read reads the peer's bytes. Only the reader calls it. Its deadline wakes a waiting read when the
// idle rules or poke require it.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if p := c.ssp.plan.Load(); p != c.plan && !c.closing.Load() {
			c.plan = p
			c.lastUsed.Store(time.Now().UnixNano())
			if c.onPlan != nil {
				c.onPlan(p)
			}
			c.arm()
			continue // the behaviour may have changed again
		}
		n, err := c.rw.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.closing.Load() {
			return n, err
		}
		if c.idleWork(); c.idleTooLong() {
			c.ssp.count(func(c *Counters) { c.IdleClosed++ })
			return 0, errIdle
		}
		c.arm()
	}
}

// arm sets the read deadline to the next moment of the idle rules.
func (c *conn) arm() {
	for seen := int64(-1); seen != c.pokes.Load(); {
		seen = c.pokes.Load() // a later poke may be overwritten, so look again
		_ = c.rw.SetReadDeadline(c.nextIdleWork())
	}
}

// nextIdleWork returns the time of the next wake-up; the zero time means never.
func (c *conn) nextIdleWork() time.Time {
	var next int64
	if idle := c.plan.Connections.IdleTimeout; idle > 0 {
		next = c.lastUsed.Load() + int64(idle)
		if c.busy.Load() > 0 {
			next = time.Now().UnixNano() + int64(idle)
		}
	}
	if at := c.poisonAt.Load(); at > 0 && (next == 0 || at < next) && c.busy.Load() == 0 {
		next = at
	}
	if next == 0 {
		return time.Time{}
	}
	return time.Unix(0, next)
}

func (c *conn) idleWork() {
	at := c.poisonAt.Load()
	if at == 0 || c.busy.Load() > 0 || time.Now().UnixNano() < at {
		return
	}
	c.poisonAt.Store(0)
	c.poison()
	c.ssp.countFault(faultUnsolicited) // counted after the write: a test that sees the count has the bytes in its socket
}

func (c *conn) idleTooLong() bool {
	idle := c.plan.Connections.IdleTimeout
	return idle > 0 && c.busy.Load() == 0 && time.Now().UnixNano() >= c.lastUsed.Load()+int64(idle)
}

// poke wakes the reader so that it looks at the behaviour and at poisonAt.
func (c *conn) poke() {
	if c.serving.Load() && !c.closing.Load() {
		c.pokes.Add(1)
		_ = c.tcp.SetReadDeadline(past)
	}
}

// begin counts a request as in flight, and returns how many are. end stops counting it.
func (c *conn) begin(bodyBytes int) (inFlight int64) {
	c.busy.Add(1)
	c.ssp.count(func(c *Counters) {
		c.Requests++
		c.RequestBodyBytes += uint64(bodyBytes)
		c.InFlight++
		c.MaxInFlight = max(c.MaxInFlight, c.InFlight)
		inFlight = c.InFlight
	})
	return inFlight
}

func (c *conn) end(p *script, f *fate) {
	if p.Connections.IdleTimeout > 0 {
		c.lastUsed.Store(time.Now().UnixNano())
	}
	if f.fault == faultUnsolicited || c.poisonAt.Load() > 0 {
		c.poisonAt.Store(time.Now().Add(time.Duration(p.Faults.Unsolicited.Delay)).UnixNano())
	}
	c.busy.Add(-1)
	c.ssp.count(func(c *Counters) { c.InFlight-- })
	if c.poisonAt.Load() > 0 {
		c.poke()
	}
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

// write writes the whole of b. The peer caused a failure, and write counts it.
func (c *conn) write(b []byte) bool {
	if _, err := c.rw.Write(b); err != nil {
		c.ssp.count(func(c *Counters) { c.WriteErrors++ })
		return false
	}
	return true
}

// closeGracefully closes the sending half. Reads are possible for lingerTimeout more.
func (c *conn) closeGracefully() {
	if c.closing.Swap(true) {
		return
	}
	_ = c.rw.SetDeadline(time.Now().Add(lingerTimeout))
	if t, ok := c.rw.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	_ = c.tcp.CloseWrite()
}

// linger reads from r, which reads from c, after closeGracefully. It discards the bytes.
func (c *conn) linger(r io.Reader) { _, _ = io.CopyN(io.Discard, r, lingerBytes) }

// reset closes the connection with a TCP RST.
func (c *conn) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}
