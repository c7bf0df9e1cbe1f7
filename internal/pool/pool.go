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
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/cpu"

	"adbuffer/internal/upstream"
)

// Address is one place to connect to.
type Address struct {
	// Host is the endpoint's host name, for TLS and messages.
	Host string
	// Authority is what the endpoint is called in requests, host[:port]; empty
	// means Host.
	Authority string
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
	// which taking turns spreads the load. It is fast where it was asked
	// lately, and bounds its own time where it was not. Nobody changes the
	// slice afterwards.
	Addresses(ctx context.Context) ([]Address, error)
	// Dial connects to addr. It offers HTTP/2 to the peer only where
	// offerHTTP2; what is spoken is Dialed.Conn.Protocol. owner hears of the
	// connection's places, and may be told of them before Dial has returned.
	// ctx ends when the time for a dial is over. Dialed.TCP and TLS are set
	// where Dial fails, too.
	Dial(ctx context.Context, addr Address, offerHTTP2 bool, owner upstream.Owner) (Dialed, error)
}

// Pool lends places on one SSP's connections. Make one with New; end it with
// Close.
type Pool struct {
	dialer  Dialer
	stats   *stats
	waiters sync.Pool          // of *waiter, spare ones
	wg      sync.WaitGroup     // dials, closes, and the janitor
	ctx     context.Context    // ends with Close; dials stop then
	cancel  context.CancelFunc // ends ctx
	_       cpu.CacheLinePad

	mu sync.Mutex // guards all below; never held across I/O

	// What every request changes stands together and apart from the rest, so
	// that it takes few cache lines from another core: see BenchmarkCores.

	// Places. inUse <= places.
	inUse  int // lent, or held by abandoned answers: the sum of members' inUse
	places int // that open connections have: the sum of members' counted

	idle  []*member // exclusive, open, not lent; most recently used last
	queue queue
	_     cpu.CacheLinePad

	opts Options
	dead bool          // Close was called: nothing is lent, opened or kept any more
	out  chan struct{} // closed when the pool is dead and no place is in use any more

	// Connections. len(members) + dialing + closing <= opts.MaxConns.
	members  map[*member]struct{} // all that are open, until their Close is called
	shared   []*member            // multiplexed, open, lending
	swept    int                  // idle ones that the janitor looks at just now
	draining int                  // of members, those that lend no more
	aging    int                  // of shared, those that go once another has come
	closing  int                  // no members any more, but Close has not returned

	// Dials.
	dialing    int               // under way; <= opts.MaxDials
	offering   int               // of dialing, those that may become HTTP/2
	onTrial    int               // of dialing, those to addresses that failed last time
	protocol   upstream.Protocol // last negotiated
	seenPlaces int               // that a connection of this protocol had, 0 before there was one
	governor   governor
	heldBack   bool            // a connection is wanted, but all addresses are left alone
	lastDial   *upstream.Error // why the last dial that failed did; never nil
	refusal    *upstream.Error // says so to those who come while all addresses are left alone; never nil
	retry      *time.Timer     // looks again when an address may be dialled; nil while not set
	retryAt    time.Time       // when
	replace    bool            // a multiplexed connection of use went: open another before it is asked for
	demotion   demotion
	probation  probation

	high    highWater
	needs   needs
	learned learnedIdle
	warm    warmth
}

// New returns a pool that dials with d. It opens nothing until it is asked to,
// by Warm or by a request.
func New(opts Options, d Dialer) *Pool {
	p := &Pool{
		dialer: d, stats: newStats(), opts: opts, protocol: opts.Protocol,
		out: make(chan struct{}), members: make(map[*member]struct{}),
		lastDial: errNotNow, refusal: errNotNow,
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.waiters.New = func() any { return newWaiter() }
	p.governor.init(opts.BackoffMin, opts.BackoffMax)
	p.warm.done = make(chan struct{})
	p.warmedLocked()
	p.needs.note(p.tally(time.Now()))
	p.wg.Go(p.janitor)
	return p
}

// Acquire lends a place to ex, and waits for one until ex.Deadline at the
// latest. Errors are *upstream.Error with Progress NotSent: PendingFull,
// PendingTimeout, Deadline, ConnectFailed, TLSFailed, Draining, or Cancelled.
//
// A request with ex.Resent waits in front of others, and until its deadline. One
// that waits for dials outlasts ex.Redials of them that fail, which are taken off;
// the next ends it.
//
// It sets ex.Times.Queued where that is zero; a caller who has just asked the
// clock may set it before, to the same effect. It sets Lent, and DNS, TCP and
// TLS where it waited for a dial.
func (p *Pool) Acquire(ex *upstream.Exchange) (Place, error) {
	now := ex.Times.Queued
	if now.IsZero() {
		now = time.Now()
		ex.Times.Queued = now
	}
	ex.Times.DNS, ex.Times.TCP, ex.Times.TLS = 0, 0, 0
	how, again := reused, false
	p.mu.Lock()
	found := p.foundLocked()
	for {
		m, err := p.takeLocked(ex.Alone, now)
		if m == nil && err == nil {
			p.stats.arrived(found)
			m, how, err = p.waitLocked(ex, again) // unlocks
		} else {
			p.mu.Unlock() // first of all: others wait for it
			p.stats.arrived(found)
			if m != nil && m.exclusive() {
				p.stats.idleAge.ObserveDuration(m.idleFor)
			}
			ex.Times.Lent = now
		}
		found = nobody // counted
		if err != nil {
			ex.Times.Lent = time.Time{}
			p.stats.refused(err, ex.Times.Queued)
			return Place{}, err
		}
		// A connection that was used before, or has lain idle, may have been
		// closed by the peer, or hold bytes that no request asked for. One that
		// is multiplexed watches itself.
		if !m.exclusive() || m.fresh || m.conn.Idle() {
			p.stats.acquired(how, ex.Times.Lent.Sub(ex.Times.Queued))
			return Place{m}, nil
		}
		p.stats.stale.Add(1)
		again, now = true, time.Now()
		p.mu.Lock()
		if age := m.idleFor; m.isIdleClose(age) {
			p.learned.note(knownAge(age))
		}
		p.freeLocked(m, unused)
	}
}

// takeLocked lends a place that is free now. It returns neither a member nor an
// error where there is none.
func (p *Pool) takeLocked(alone bool, now time.Time) (*member, error) {
	if p.dead {
		return nil, errDraining
	}
	if p.queue.n > 0 {
		return nil, nil // those who wait come first
	}
	if m := p.leastBusyLocked(alone); m != nil {
		p.lendLocked(m, alone, now)
		p.growLocked(now)
		return m, nil
	}
	m := p.popIdleLocked(now)
	if m != nil {
		p.lendLocked(m, alone, now)
	}
	return m, nil
}

// lendLocked counts one place of m as lent, and lends no other of a pipelined
// connection while it is lent to a request that must be alone.
func (p *Pool) lendLocked(m *member, alone bool, now time.Time) {
	m.inUse++
	m.requests++
	m.idleFor, m.used = now.Sub(m.used), now
	p.inUse++
	if alone && m.protocol == upstream.HTTP1Pipelined {
		m.alone = true
		p.recountLocked(m)
	}
	p.high.note(now, p.inUse, p.possibleLocked())
	if n := p.opts.MaxRequests; n > 0 && m.requests >= n {
		p.drainLocked(m, upstream.ClosedMaxRequests)
	}
}

var errDraining = &upstream.Error{Outcome: upstream.Draining, Progress: upstream.NotSent, Detail: "adbuffer is stopping, or the SSP was taken out of its configuration"}
