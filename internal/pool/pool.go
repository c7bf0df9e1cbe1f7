// Package pool lends places on connections: queue, dial governor, idle and age
// rules.
//
// One pool serves one SSP on all cores. It knows no protocol: connections offer
// places (upstream.Conn), and the pool lends them, to one request each, the
// most recently used exclusive connection first, of multiplexed ones the least
// busy. What it cannot lend at once it dials for, within max_conns and the dial
// governor, while the request waits in a bounded first-in-first-out queue.
package pool

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"adbuffer/internal/upstream"
)

// Address is one place to connect to.
type Address struct {
	// Host is the endpoint's authority: the host, and the port where it is not
	// the scheme's own.
	Host string
	// AddrPort is where it was found.
	AddrPort netip.AddrPort
}

// String returns "host (ip:port)".
func (a Address) String() string { return a.Host + " (" + a.AddrPort.String() + ")" }

// Dialed is a new connection and what it took.
type Dialed struct {
	Conn     upstream.Conn
	TCP, TLS time.Duration // TLS is 0 on cleartext
}

// Dialer finds an SSP and connects to it. Its methods are safe for concurrent
// use and return soon after ctx ends; their errors are *upstream.Error with
// Progress NotSent.
type Dialer interface {
	// Addresses returns where the SSP is now, of all endpoints, in an order in
	// which taking turns spreads the load. It is fast where it was asked lately.
	Addresses(ctx context.Context) ([]Address, error)
	// Dial connects to addr. It offers HTTP/2 to the peer only where
	// offerHTTP2; what is spoken is Dialed.Conn.Protocol. owner hears of the
	// connection's places.
	Dial(ctx context.Context, addr Address, offerHTTP2 bool, owner upstream.Owner) (Dialed, error)
}

// Options are the settings of a pool; see config/adbuffer.yaml for what each
// does. New takes a copy.
type Options struct {
	SSP string // for messages

	MaxConns      int // ≥ 1
	MaxHTTP2Conns int // ≥ 1
	MinIdle       int
	MaxIdle       int
	IdleTimeout   time.Duration // 0 = no limit
	MaxAge        time.Duration // 0 = no limit
	MaxRequests   int           // per connection, 0 = no limit

	MaxPending     int // -1 = no limit
	PendingTimeout time.Duration

	MaxDials   int
	BackoffMin time.Duration
	BackoffMax time.Duration
	// ConnectTimeout and TLSTimeout bound a dial, and so the wait for one.
	// TLSTimeout is 0 where the SSP is cleartext.
	ConnectTimeout, TLSTimeout time.Duration

	// Protocol is what all connections will speak, Unknown where ALPN decides.
	Protocol upstream.Protocol
	// PipelineDepth and MaxStreams are the places that a connection of these
	// protocols has at best.
	PipelineDepth, MaxStreams int
}

// Pool lends places on one SSP's connections. Make one with New; end it with
// Close.
type Pool struct {
	dialer Dialer
	stats  *stats
	wg     sync.WaitGroup     // dials, and the janitor
	ctx    context.Context    // ends with Close; dials stop then
	cancel context.CancelFunc // ends ctx

	mu   sync.Mutex // guards all below; never held across I/O
	opts Options
	dead bool // Close was called: nothing is lent, opened or kept any more

	idle    []*member // exclusive, open, not lent; most recently used last
	shared  []*member // multiplexed, open, lending
	members map[*member]struct{}
	queue   queue

	inUse    int // places lent: the sum of members' inUse
	places   int // places that open connections have: the sum of members' places
	protocol upstream.Protocol
	probing  bool // a dial is under way that will tell the protocol
	dialing  int
	governor governor
	lastDial *upstream.Error // of the last dial that failed
	retry    *time.Timer     // looks again when an address may be dialled; nil while not set
	draining int             // of members, those that drain
	replace  bool            // a connection that was of use went, or goes: open another before it is asked for
	demotion demotion

	high highWater
	warm warmth
}

// member is one connection as the pool keeps it. It is the connection's Owner.
type member struct {
	pool     *Pool
	conn     upstream.Conn // nil until dialled
	protocol upstream.Protocol
	addr     Address

	// guarded by pool.mu

	inUse    int  // places lent, or held by abandoned answers
	places   int  // Conn.Places, as last counted into pool.places
	requests int  // lent so far
	fresh    bool // lent to the first exchange right after its dial
	aging    bool // too old, but the last of its pool: goes when another has come
	draining bool // lends no more; goes when inUse is 0
	why      upstream.CloseReason
	opened   time.Time
	used     time.Time // last lent or freed
	retireAt time.Time // zero = never
}

// exclusive reports whether m carries one exchange at a time.
func (m *member) exclusive() bool { return m.protocol == upstream.HTTP1 }

// New returns a pool that dials with d. It opens nothing until it is asked to,
// by Warm or by a request.
func New(opts Options, d Dialer) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{
		dialer: d, stats: newStats(), ctx: ctx, cancel: cancel,
		opts: opts, protocol: opts.Protocol, members: make(map[*member]struct{}),
	}
	p.governor.init(opts.BackoffMin, opts.BackoffMax)
	p.warm.done = make(chan struct{})
	p.wg.Go(p.janitor)
	return p
}

// Place is one place on a connection, lent to one exchange. It is given back
// by Do, or, unused, by Return; exactly one of them must be called, once.
type Place struct{ m *member }

// Do runs ex on the place. See upstream.Conn.
func (pl Place) Do(ex *upstream.Exchange) error {
	err := pl.m.conn.Do(ex)
	if err != nil {
		if upstream.AsError(err).Demote {
			pl.m.pool.breached()
		}
	}
	return err
}

// Host returns the authority of the endpoint that the connection goes to.
func (pl Place) Host() string { return pl.m.addr.Host }

// Return gives the place back without having used it.
func (pl Place) Return() { pl.m.pool.free(pl.m, -1) }

// Acquire lends a place to ex, and waits for one until ex.Deadline at the
// latest. It sets ex.Times.Queued where that is zero, and Lent. Errors are
// *upstream.Error with Progress NotSent: PendingFull, PendingTimeout, Deadline,
// ConnectFailed, TLSFailed, Draining, or Cancelled.
func (p *Pool) Acquire(ex *upstream.Exchange) (Place, error) {
	now := ex.Times.Queued
	if now.IsZero() {
		now = time.Now()
		ex.Times.Queued = now
	}
	first, waited := true, false
	for {
		p.mu.Lock()
		if first {
			p.arrivedLocked(now)
		}
		m, err := p.takeLocked(now)
		if m == nil && err == nil {
			waited = true
			m, err = p.waitLocked(ex, now, first) // unlocks
		} else {
			p.mu.Unlock()
			ex.Times.Lent = now
		}
		if err != nil {
			ex.Times.Lent = time.Time{}
			return Place{}, err
		}
		// A connection that was used before, or has lain idle, may have been
		// closed by the peer, or hold bytes that no request asked for. One that
		// is multiplexed watches itself.
		if m.exclusive() && !m.fresh && !m.conn.Idle() {
			p.stats.stale.Add(1)
			p.free(m, -1)
			first, now = false, time.Now()
			continue
		}
		if !waited {
			p.stats.acquired(reused, ex.Times.Lent.Sub(ex.Times.Queued))
		}
		return Place{m}, nil
	}
}

// takeLocked lends a place that is free now. It returns neither a member nor an
// error where there is none.
func (p *Pool) takeLocked(now time.Time) (*member, error) {
	if p.dead {
		return nil, errDraining
	}
	if p.queue.len() > 0 {
		return nil, nil // those who wait come first
	}
	if m := p.leastBusyLocked(); m != nil {
		p.lendLocked(m, now)
		p.growLocked(now)
		return m, nil
	}
	for n := len(p.idle); n > 0; n = len(p.idle) {
		m := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		if r := p.expiredLocked(m, now); r != upstream.NotClosed {
			p.retireLocked(m, r)
			continue
		}
		p.stats.idleAge.ObserveDuration(now.Sub(m.used))
		p.lendLocked(m, now)
		return m, nil
	}
	return nil, nil
}

// lendLocked counts one place of m as lent.
func (p *Pool) lendLocked(m *member, now time.Time) {
	m.inUse++
	m.requests++
	m.used = now
	p.inUse++
	p.high.note(now, p.inUse, p.possibleLocked())
	if n := p.opts.MaxRequests; n > 0 && m.requests >= n {
		p.drainLocked(m, upstream.ClosedMaxRequests)
	}
}

// Freed implements upstream.Owner.
func (m *member) Freed(held time.Duration) { m.pool.free(m, held) }

// Changed implements upstream.Owner.
func (m *member) Changed() {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.members[m]; !open {
		return // not filed yet, or gone
	}
	p.recountLocked(m)
	if m.conn.CloseReason() != upstream.NotClosed {
		p.drainLocked(m, m.conn.CloseReason())
		if m.inUse == 0 {
			p.removeLocked(m)
		}
		p.growLocked(time.Now())
		return
	}
	p.serveLocked(time.Now())
}

// free takes back one place of m, which was in use for held; a negative held
// means that it was not used, which no histogram should see.
func (p *Pool) free(m *member, held time.Duration) {
	if held >= 0 {
		p.stats.hold.ObserveDuration(held)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.inUse <= 0 {
		panic("BUG: a place was given back twice")
	}
	m.inUse--
	p.inUse--
	m.fresh = false
	if m.exclusive() {
		m.used = m.used.Add(max(held, 0)) // since it was lent: no need to ask the clock
	} else if m.inUse == 0 {
		m.used = time.Now()
	}
	p.recountLocked(m)
	if r := m.conn.CloseReason(); r != upstream.NotClosed {
		p.drainLocked(m, r)
	}
	switch {
	case m.draining && m.inUse == 0:
		p.removeLocked(m)
		if p.queue.len() > 0 || p.opts.MinIdle > 0 {
			p.growLocked(time.Now())
		}
	case m.draining:
	case p.queue.len() > 0:
		p.serveLocked(time.Now())
	case m.exclusive():
		p.parkLocked(m)
	}
}

// parkLocked puts an exclusive connection among the idle ones.
func (p *Pool) parkLocked(m *member) {
	switch {
	case p.dead:
		p.retireLocked(m, upstream.ClosedDrain)
	case len(p.idle) >= p.opts.MaxIdle:
		p.retireLocked(m, upstream.ClosedIdle)
	default:
		p.idle = append(p.idle, m)
	}
}

// recountLocked takes m's places, which may have changed, into the pool's sum.
func (p *Pool) recountLocked(m *member) {
	n := m.conn.Places()
	p.places += n - m.places
	m.places = n
}

// drainLocked makes m lend no more; the first reason stays.
func (p *Pool) drainLocked(m *member, why upstream.CloseReason) {
	if m.draining {
		return
	}
	m.draining, m.why = true, why
	p.draining++
	if i := slices.Index(p.shared, m); i >= 0 {
		p.shared = slices.Delete(p.shared, i, i+1)
		p.replace = p.replace || why != upstream.ClosedIdle && time.Since(m.used) < replaceWithin
	}
}

// retireLocked drains m, and removes it where nothing is outstanding on it.
func (p *Pool) retireLocked(m *member, why upstream.CloseReason) {
	p.drainLocked(m, why)
	if m.inUse == 0 {
		p.removeLocked(m)
	}
}

// removeLocked closes and forgets m, on which nothing is outstanding and which
// is not among the idle ones.
func (p *Pool) removeLocked(m *member) {
	if _, open := p.members[m]; !open {
		return
	}
	delete(p.members, m)
	p.draining-- // a member drains before it goes
	p.places -= m.places
	m.places = 0
	p.stats.closed(m)
	if m.conn.CloseReason() == upstream.NotClosed {
		// Closing may write (TLS's close_notify): not under the lock.
		conn, why := m.conn, m.why
		go conn.Close(why)
	}
}

var errDraining = &upstream.Error{Outcome: upstream.Draining, Progress: upstream.NotSent, Detail: "adbuffer is stopping, or the SSP was taken out of its configuration"}

// fullErrorLocked says that the queue is full, and of what.
func (p *Pool) fullErrorLocked() error {
	return &upstream.Error{
		Outcome: upstream.PendingFull, Progress: upstream.NotSent,
		Detail: fmt.Sprintf("%d of %d places busy on %d of %d connections, %d of %d places in the queue taken; see pool.max_conns and pool.max_pending",
			p.inUse, p.possibleLocked(), len(p.members)+p.dialing, p.capLocked(), p.queue.beyond, p.opts.MaxPending),
	}
}
