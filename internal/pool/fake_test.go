package pool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/upstream"
)

// peer is an SSP made of scripts: it dials as its script says, and counts what
// it sees of the pool from outside.
type peer struct {
	t testing.TB

	mu       sync.Mutex
	addrs    []Address
	lookup   error                // of Addresses
	script   func(dialCall) reply // nil: HTTP/1 after 10 ms
	do       func(*fakeConn, *upstream.Exchange) error
	conns    []*fakeConn // all that were ever opened
	dials    []dialCall  // all that were ever begun
	dialling int
	open     int // whose Close was not called and which did not close themselves
	maxOpen  int // highest of open + dialling
	maxDials int // highest of dialling

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
	return s.addrs, s.lookup
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

// testOptions are the settings of a small HTTP/1 pool.
func testOptions() Options {
	return Options{
		SSP: "openx", MaxConns: 4, MaxHTTP2Conns: 2, MaxIdle: 4, IdleTimeout: 55 * time.Second,
		MaxPending: 10, PendingTimeout: 50 * time.Millisecond, MaxDials: 16,
		BackoffMin: 100 * time.Millisecond, BackoffMax: 5 * time.Second,
		ConnectTimeout: 250 * time.Millisecond, TLSTimeout: 500 * time.Millisecond,
		Protocol: upstream.HTTP1, PipelineDepth: 8, MaxStreams: 100,
	}
}

// start returns a pool that is closed, and looked over, at the end of the test.
func start(t testing.TB, s *peer, change func(*Options)) *Pool {
	t.Helper()
	o := testOptions()
	if change != nil {
		change(&o)
	}
	o.MaxIdle = max(o.MaxIdle, o.MinIdle)
	p := New(o, s)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
		wantConsistent(t, p, s)
		if t.Failed() {
			return
		}
		if s.openCount() != 0 {
			t.Errorf("after Close, %d connections are open", s.openCount())
		}
	})
	return p
}

// wantConsistent checks the pool's books against each other and against what
// the peer has seen.
func wantConsistent(t testing.TB, p *Pool, s *peer) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	inUse, places, draining := 0, 0, 0
	for m := range p.members {
		inUse += m.inUse
		places += m.counted
		if m.draining {
			draining++
		}
	}
	if inUse != p.inUse || places != p.places || draining != p.draining {
		t.Errorf("the sums over members are inUse %d, places %d, draining %d; the pool's are %d, %d, %d", inUse, places, draining, p.inUse, p.places, p.draining)
	}
	if p.inUse > p.places {
		t.Errorf("%d places in use of %d", p.inUse, p.places)
	}
	for _, m := range p.idle {
		if _, open := p.members[m]; !open || m.draining || m.inUse > 0 || !m.exclusive() {
			t.Errorf("the idle member %+v is not one", m)
		}
	}
	for _, m := range p.shared {
		if _, open := p.members[m]; !open || m.draining || m.exclusive() {
			t.Errorf("the shared member %+v is not one", m)
		}
	}
	var opened, closed uint64
	for i := range p.stats.openedBy {
		opened += p.stats.openedBy[i].Load()
	}
	for i := range p.stats.closedBy {
		closed += p.stats.closedBy[i].Load()
	}
	if opened != closed+uint64(len(p.members)) {
		t.Errorf("%d connections opened, %d closed, %d open", opened, closed, len(p.members))
	}
	if n := p.stats.closedBy[upstream.NotClosed].Load(); n > 0 {
		t.Errorf("%d connections were closed for no reason", n)
	}
	if q := &p.queue; p.opts.MaxPending >= 0 && q.beyond > p.opts.MaxPending {
		t.Errorf("%d requests wait beyond dials, %d may", q.beyond, p.opts.MaxPending)
	}
	waits := uint64(0)
	for _, h := range p.stats.acquire {
		waits += h.Count()
	}
	if got := p.stats.arrivals.Load(); got < waits {
		t.Errorf("%d requests asked for a place, %d were answered", got, waits)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.maxOpen > p.opts.MaxConns {
		t.Errorf("%d connections were open or being dialled at once, %d may be", s.maxOpen, p.opts.MaxConns)
	}
	if s.maxDials > p.opts.MaxDials {
		t.Errorf("%d dials were under way at once, %d may be", s.maxDials, p.opts.MaxDials)
	}
}

// request is one call of Acquire in a goroutine of its own.
type request struct {
	t     testing.TB
	ex    *upstream.Exchange
	began time.Time

	mu    sync.Mutex
	over  bool
	place Place
	err   error
	took  time.Duration
}

// ask starts a request with a deadline that far from now.
func ask(t testing.TB, p *Pool, deadline time.Duration) *request {
	return askWith(t, p, deadline, nil)
}

func askWith(t testing.TB, p *Pool, deadline time.Duration, ctx context.Context) *request {
	r := &request{t: t, began: time.Now(), ex: &upstream.Exchange{Context: ctx, Deadline: time.Now().Add(deadline)}}
	go func() {
		place, err := p.Acquire(r.ex)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.over, r.place, r.err, r.took = true, place, err, time.Since(r.began)
	}()
	return r
}

func (r *request) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// wantConn checks that the request was lent a place on connection n after took.
func (r *request) wantConn(n int, took time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.over:
		r.t.Fatal("the request still waits")
	case r.err != nil:
		r.t.Fatalf("the request got %v", r.err)
	case r.conn().n != n || r.took != took:
		r.t.Errorf("the request got connection %d after %v, want %d after %v", r.conn().n, r.took, n, took)
	}
}

// wantErr checks that the request got an error after took.
func (r *request) wantErr(o upstream.Outcome, took time.Duration) *upstream.Error {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var e *upstream.Error
	switch {
	case !r.over:
		r.t.Fatalf("the request still waits, want %v", o)
	case r.err == nil:
		r.t.Fatalf("the request got connection %d, want %v", r.conn().n, o)
	case !errors.As(r.err, &e) || e.Outcome != o || e.Progress != upstream.NotSent:
		r.t.Errorf("the request got %v, want %v, not sent", r.err, o)
	case r.took != took:
		r.t.Errorf("the request got %v after %v, want it after %v", r.err, r.took, took)
	}
	return e
}

func (r *request) wantWaits() {
	r.t.Helper()
	if r.ended() {
		r.t.Fatalf("the request waits no more: %v", r.err)
	}
}

func (r *request) conn() *fakeConn { return r.place.m.conn.(*fakeConn) }

// do uses the place.
func (r *request) do() error { return r.place.Do(r.ex) }

// lend returns a place that is had at once, in the caller's goroutine.
func lend(t testing.TB, p *Pool) *request {
	t.Helper()
	r := &request{t: t, began: time.Now(), ex: &upstream.Exchange{Deadline: time.Now().Add(time.Second)}}
	r.place, r.err = p.Acquire(r.ex)
	r.over, r.took = true, time.Since(r.began)
	if r.err != nil {
		t.Fatalf("no place: %v", r.err)
	}
	return r
}

// pass lets time pass, and then everything happen that is to happen by then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func pass5()  { time.Sleep(5 * time.Millisecond) }
func pass20() { time.Sleep(20 * time.Millisecond) }

// finish uses the places that requests were lent, and those that this gets the
// others, until all have ended, and fails those that got none.
func finish(all []*request) {
	for len(all) > 0 {
		synctest.Wait()
		n := len(all)
		all = slices.DeleteFunc(all, func(r *request) bool {
			if !r.ended() {
				return false
			}
			if r.err != nil {
				r.t.Errorf("a request got %v", r.err)
				return true
			}
			r.do()
			return true
		})
		if n == len(all) {
			time.Sleep(time.Millisecond)
		}
	}
}
