package pool

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// fakeSSP is a Dialer that follows its script. It counts the pool's connections and dials
// independently of the pool.
type fakeSSP struct {
	t testing.TB

	mu     sync.Mutex
	addrs  []exchange.Address
	lookup error // the error of Addresses
	// lookupFails is how many look-ups fail with lookup; 0 = all.
	lookupFails int
	script      func(dialCall) dialResult // nil: HTTP/1 after 10 ms
	do          func(*fakeConn, *exchange.Exchange) error
	conns       []*fakeConn // in the order in which they were opened
	dials       []dialCall  // in the order in which they began
	dialing     int
	idleLimit   time.Duration // IdleLimit of its connections; 0 = NoIdleLimit
	open        int           // connections that are not closed
	inPool      int           // of them, those that are not for health checks
	maxOpen     int           // highest of inPool + dialing
	maxDials    int           // highest of dialing

	lookups atomic.Int64
}

// dialCall is one call of Dial.
type dialCall struct {
	n      int // dials that began before this one
	addr   exchange.Address
	offer  bool
	at     time.Time
	others []exchange.Address
}

// dialResult is the result of a dial. The zero dialResult is an immediate HTTP/1 connection.
type dialResult struct {
	after    time.Duration
	err      error
	protocol exchange.Protocol    // Unknown means HTTP1
	places   int                  // 0 means 1, 8 or 100, by protocol
	closed   exchange.CloseReason // the SSP closes the connection before Dial returns
	to       int                  // Dialed.At
	lost     []error              // Dialed.Lost
}

// newFakeSSP returns an SSP with one address. All dials end with result, if it is given.
func newFakeSSP(t testing.TB, result ...dialResult) *fakeSSP {
	s := &fakeSSP{t: t, addrs: addresses(1)}
	for _, r := range result {
		s.always(r)
	}
	return s
}

// locked changes the SSP while no other goroutine uses it.
func (s *fakeSSP) locked(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func addresses(n int) []exchange.Address {
	var all []exchange.Address
	for i := range n {
		all = append(all, exchange.Address{Endpoint: exchange.Endpoint{Host: fmt.Sprintf("ssp%d.test", i), Authority: fmt.Sprintf("ssp%d.test", i)}, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), 80)})
	}
	return all
}

func (s *fakeSSP) set(script func(dialCall) dialResult) {
	s.locked(func() { s.script = script })
}

// always makes all dials end with r.
func (s *fakeSSP) always(r dialResult) { s.set(func(dialCall) dialResult { return r }) }

func (s *fakeSSP) Addresses(ctx context.Context) ([]exchange.Address, error) {
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

func (s *fakeSSP) Dial(ctx context.Context, addr exchange.Address, others []exchange.Address, offer bool, owner exchange.Owner) (Dialed, error) {
	s.mu.Lock()
	call := dialCall{len(s.dials), addr, offer, time.Now(), others}
	s.dials = append(s.dials, call)
	counts := 1
	if owner == (noOwner{}) { // for health checks, which no limit counts
		counts = 0
	}
	s.dialing += counts
	s.maxOpen = max(s.maxOpen, s.inPool+s.dialing)
	s.maxDials = max(s.maxDials, s.dialing)
	script := s.script
	s.mu.Unlock()
	r := dialResult{after: 10 * time.Millisecond}
	if script != nil {
		r = script(call)
	}
	timer := time.NewTimer(r.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		r.err = &exchange.Error{Outcome: exchange.ConnectFailed, Err: ctx.Err()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing -= counts
	if r.err != nil {
		return Dialed{TCP: r.after, At: r.to, Lost: r.lost}, r.err
	}
	if r.to > 0 {
		addr = others[r.to-1]
	}
	c := &fakeConn{ssp: s, owner: owner, n: len(s.conns), addr: addr, protocol: r.protocol, places: r.places, reason: r.closed}
	if c.protocol == exchange.Unknown {
		c.protocol = exchange.HTTP1
	}
	if c.places == 0 {
		c.places = [exchange.Protocols]int{exchange.HTTP1: 1, exchange.HTTP1Pipelined: 8, exchange.HTTP2: 100}[c.protocol]
	}
	s.conns = append(s.conns, c)
	if r.closed == exchange.NotClosed {
		s.open++
		s.inPool += counts
	}
	s.maxOpen = max(s.maxOpen, s.inPool+s.dialing)
	return Dialed{Conn: c, TCP: r.after, At: r.to, Lost: r.lost}, nil
}

func (s *fakeSSP) dialCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dials)
}

func (s *fakeSSP) openCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// last returns the connection that was opened last.
func (s *fakeSSP) last() *fakeConn { return s.conn(len(s.conns) - 1) }

// conn returns the n-th connection that was opened.
func (s *fakeSSP) conn(n int) *fakeConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	testsupport.MustTrue(s.t, n < len(s.conns), "there is no connection %d, only %d", n, len(s.conns))
	return s.conns[n]
}

// fakeConn is a connection of a fakeSSP. fakeSSP.mu guards the fields from places on.
type fakeConn struct {
	ssp      *fakeSSP
	owner    exchange.Owner
	n        int // connections that were opened before this one
	addr     exchange.Address
	protocol exchange.Protocol

	places      int
	reason      exchange.CloseReason
	inUse       int // calls of Do whose place is not released yet
	done        int // calls of Do
	unsolicited bool
	checks      int // calls of Idle
	closes      int // calls of Close
	slowClose   time.Duration
}

func (c *fakeConn) Protocol() exchange.Protocol { return c.protocol }

func (c *fakeConn) Places() int {
	c.ssp.mu.Lock()
	defer c.ssp.mu.Unlock()
	if c.reason != exchange.NotClosed {
		return 0
	}
	return c.places
}

func (c *fakeConn) IdleLimit() time.Duration {
	c.ssp.mu.Lock()
	defer c.ssp.mu.Unlock()
	return cmp.Or(c.ssp.idleLimit, exchange.NoIdleLimit)
}

func (c *fakeConn) CloseReason() exchange.CloseReason {
	c.ssp.mu.Lock()
	defer c.ssp.mu.Unlock()
	return c.reason
}

func (c *fakeConn) Idle() bool {
	c.ssp.mu.Lock()
	defer c.ssp.mu.Unlock()
	c.checks++
	testsupport.True(c.ssp.t, c.inUse <= 0, "Idle was called on connection %d, on which %d exchanges are outstanding", c.n, c.inUse)
	if c.unsolicited {
		c.closeLocked(exchange.ClosedUnsolicited)
	}
	return c.reason == exchange.NotClosed
}

func (c *fakeConn) Close(r exchange.CloseReason) {
	testsupport.True(c.ssp.t, r != exchange.NotClosed, "connection %d is closed without a reason", c.n)
	c.ssp.mu.Lock()
	c.closes++
	slow := c.slowClose
	c.ssp.mu.Unlock()
	time.Sleep(slow)
	c.ssp.mu.Lock()
	defer c.ssp.mu.Unlock()
	c.closeLocked(r)
}

func (c *fakeConn) closeLocked(r exchange.CloseReason) {
	if c.reason == exchange.NotClosed {
		c.reason = r
		c.ssp.open--
		if c.owner != (noOwner{}) {
			c.ssp.inPool--
		}
	}
}

// closeItself closes the connection without a call by its owner.
func (c *fakeConn) closeItself(r exchange.CloseReason) {
	c.ssp.mu.Lock()
	defer c.ssp.mu.Unlock()
	c.closeLocked(r)
}

// goAway makes the connection refuse new requests, like a GOAWAY. Outstanding exchanges continue.
func (c *fakeConn) goAway(r exchange.CloseReason) {
	c.closeItself(r)
	c.owner.Changed()
}

// openConns returns the open connections.
func (s *fakeSSP) openConns() []*fakeConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.conns), func(c *fakeConn) bool { return c.reason != exchange.NotClosed })
}

// setPlaces changes how many exchanges the connection accepts.
func (c *fakeConn) setPlaces(n int) {
	c.ssp.mu.Lock()
	c.places = n
	c.ssp.mu.Unlock()
	c.owner.Changed()
}

var errFakeLost = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed}

// Do returns at once, unless fakeSSP.do is set.
func (c *fakeConn) Do(ex *exchange.Exchange) error {
	c.ssp.mu.Lock()
	c.done++
	c.inUse++
	testsupport.True(c.ssp.t, c.inUse <= c.places || c.protocol != exchange.HTTP1, "connection %d carries %d exchanges at once, and has %d places", c.n, c.inUse, c.places)
	do := c.ssp.do
	c.ssp.mu.Unlock()
	var err error
	if do != nil {
		err = do(c, ex)
	}
	c.ssp.mu.Lock()
	c.inUse--
	if err == nil && c.reason == exchange.ClosedDrain {
		err = errFakeLost
	}
	c.ssp.mu.Unlock()
	c.owner.Freed(time.Since(ex.Times.Acquired), ex.Ticket)
	return err
}

var errRefused = &exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Detail: "refused by the script", Err: syscall.ECONNREFUSED}
