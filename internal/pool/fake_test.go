package pool

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/upstream"
)

// peer is an SSP made of scripts: it dials as its script says, and counts what
// it sees of the pool from outside.
type peer struct {
	t testing.TB

	mu     sync.Mutex
	addrs  []Address
	lookup error // of Addresses
	// lookupFails is how many look-ups end with lookup; 0 = all.
	lookupFails int
	script      func(dialCall) reply // nil: HTTP/1 after 10 ms
	do          func(*fakeConn, *upstream.Exchange) error
	conns       []*fakeConn // all that were ever opened
	dials       []dialCall  // all that were ever begun
	dialling    int
	open        int // whose Close was not called and which did not close themselves
	maxOpen     int // highest of open + dialling
	maxDials    int // highest of dialling

	lookups atomic.Int64
}

// dialCall is one call of Dial.
type dialCall struct {
	n     int // how many came before it
	addr  Address
	offer bool
	at    time.Time
}

// reply is what a dial comes to. The zero reply is an HTTP/1 connection at once.
type reply struct {
	after    time.Duration
	err      error
	protocol upstream.Protocol    // Unknown means HTTP1
	places   int                  // 0 means what is usual: 1, 8 or 100
	closed   upstream.CloseReason // by the peer, before Dial has returned
}

func newPeer(t testing.TB) *peer {
	return &peer{t: t, addrs: addresses(1)}
}

func addresses(n int) []Address {
	var all []Address
	for i := range n {
		all = append(all, Address{Host: fmt.Sprintf("ssp%d.test", i), AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), 80)})
	}
	return all
}

func (s *peer) set(script func(dialCall) reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

func (s *peer) Addresses(ctx context.Context) ([]Address, error) {
	s.lookups.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lookup; err != nil {
		if s.lookupFails--; s.lookupFails == 0 {
			s.lookup = nil
		}
		return nil, err
	}
	return s.addrs, nil
}

func (s *peer) Dial(ctx context.Context, addr Address, offer bool, owner upstream.Owner) (Dialed, error) {
	s.mu.Lock()
	call := dialCall{len(s.dials), addr, offer, time.Now()}
	s.dials = append(s.dials, call)
	s.dialling++
	s.maxOpen = max(s.maxOpen, s.open+s.dialling)
	s.maxDials = max(s.maxDials, s.dialling)
	script := s.script
	s.mu.Unlock()
	r := reply{after: 10 * time.Millisecond}
	if script != nil {
		r = script(call)
	}
	timer := time.NewTimer(r.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		r.err = &upstream.Error{Outcome: upstream.ConnectFailed, Err: ctx.Err()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialling--
	if r.err != nil {
		return Dialed{TCP: r.after}, r.err
	}
	c := &fakeConn{peer: s, owner: owner, n: len(s.conns), addr: addr, protocol: r.protocol, places: r.places, reason: r.closed}
	if c.protocol == upstream.Unknown {
		c.protocol = upstream.HTTP1
	}
	if c.places == 0 {
		c.places = [upstream.Protocols]int{upstream.HTTP1: 1, upstream.HTTP1Pipelined: 8, upstream.HTTP2: 100}[c.protocol]
	}
	s.conns = append(s.conns, c)
	if r.closed == upstream.NotClosed {
		s.open++
	}
	s.maxOpen = max(s.maxOpen, s.open+s.dialling)
	return Dialed{Conn: c, TCP: r.after}, nil
}

func (s *peer) dialCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dials)
}

func (s *peer) openCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// conn returns the n-th connection that was opened.
func (s *peer) conn(n int) *fakeConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= len(s.conns) {
		s.t.Fatalf("there is no connection %d, only %d", n, len(s.conns))
	}
	return s.conns[n]
}

// fakeConn is a connection of a peer. All but the constants is guarded by
// peer.mu.
type fakeConn struct {
	peer     *peer
	owner    upstream.Owner
	n        int // how many were opened before
	addr     Address
	protocol upstream.Protocol

	places    int
	reason    upstream.CloseReason
	busy      int // calls of Do that have not freed their place
	done      int // calls of Do
	unasked   bool
	looks     int // calls of Idle
	closes    int // calls of Close
	slowClose time.Duration
}

func (c *fakeConn) Protocol() upstream.Protocol { return c.protocol }

func (c *fakeConn) Places() int {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	if c.reason != upstream.NotClosed {
		return 0
	}
	return c.places
}

func (c *fakeConn) CloseReason() upstream.CloseReason {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	return c.reason
}

func (c *fakeConn) Idle() bool {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.looks++
	if c.busy > 0 {
		c.peer.t.Errorf("Idle was asked of connection %d, on which %d exchanges are outstanding", c.n, c.busy)
	}
	if c.unasked {
		c.shutLocked(upstream.ClosedUnsolicited)
	}
	return c.reason == upstream.NotClosed
}

func (c *fakeConn) Close(r upstream.CloseReason) {
	if r == upstream.NotClosed {
		c.peer.t.Errorf("connection %d is closed without a reason", c.n)
	}
	c.peer.mu.Lock()
	c.closes++
	slow := c.slowClose
	c.peer.mu.Unlock()
	time.Sleep(slow)
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.shutLocked(r)
}

func (c *fakeConn) shutLocked(r upstream.CloseReason) {
	if c.reason == upstream.NotClosed {
		c.reason = r
		c.peer.open--
	}
}

// shut is the connection closing itself, told nobody.
func (c *fakeConn) shut(r upstream.CloseReason) {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.shutLocked(r)
}

// leave is the connection taking no more requests, as a GOAWAY makes it do:
// what is outstanding goes on.
func (c *fakeConn) leave(r upstream.CloseReason) {
	c.shut(r)
	c.owner.Changed()
}

// setPlaces is the peer changing how many exchanges it takes.
func (c *fakeConn) setPlaces(n int) {
	c.peer.mu.Lock()
	c.places = n
	c.peer.mu.Unlock()
	c.owner.Changed()
}

var errFakeLost = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed}

// Do takes no time, unless the peer has a do of its own.
func (c *fakeConn) Do(ex *upstream.Exchange) error {
	c.peer.mu.Lock()
	c.done++
	c.busy++
	if c.busy > c.places && c.protocol == upstream.HTTP1 {
		c.peer.t.Errorf("connection %d carries %d exchanges at once, and has %d places", c.n, c.busy, c.places)
	}
	do := c.peer.do
	c.peer.mu.Unlock()
	var err error
	if do != nil {
		err = do(c, ex)
	}
	c.peer.mu.Lock()
	c.busy--
	if err == nil && c.reason == upstream.ClosedDrain {
		err = errFakeLost
	}
	c.peer.mu.Unlock()
	c.owner.Freed(time.Since(ex.Times.Lent))
	return err
}

var errRefused = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: "refused by the script", Err: syscall.ECONNREFUSED}
