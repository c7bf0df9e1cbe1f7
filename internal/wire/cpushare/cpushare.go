// Package cpushare bounds the CPU of work that no client request asked for: TLS handshakes, scrapes
// and the decoding of large bodies. Without a bound, a peer that provokes such work makes the requests
// of all others wait, and the overload gate refuses them.
//
// The bound holds only while requests wait for CPU, which Share.Observe learns from package lag. At
// other times the work may use all CPU that requests leave idle. Parties take turns, so that one party
// does not keep the share from the others: see Party.
package cpushare

import (
	"hash/maphash"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/fairqueue"
)

// Work is a kind of work that runs in a Share.
type Work uint8

// The kinds of work.
const (
	ClientHandshake Work = iota // a TLS handshake with a client
	AdminHandshake              // a TLS handshake at the admin listener
	SSPHandshake                // a TLS handshake with an SSP
	Scrape                      // a text of /metrics
	Decode                      // a large compressed body

	works
)

var workNames = [works]string{"client_handshake", "admin_handshake", "ssp_handshake", "scrape", "decode"}

// String returns the name that metrics use.
func (w Work) String() string { return workNames[w] }

// exclusive reports whether work of this kind computes in a place, of which there is one for two
// cores. Peers can begin any number of such works at once. Dials and scrapes have bounds of their own.
func (w Work) exclusive() bool { return w != SSPHandshake && w != Scrape }

// Party is who causes work, as a hash. Each party has turns of its own.
type Party uint64

// PartyOf returns the party of a peer's address: all addresses of an IPv4 /24 or an IPv6 /48. An
// attacker who rents addresses often has all addresses of such a network.
func PartyOf(peer netip.Addr) Party {
	peer = peer.Unmap()
	if peer.Is4() {
		network, _ := peer.Prefix(24)
		peer = network.Addr()
	}
	return Party(rates.Hash(peer))
}

// PartyNamed returns the party of an SSP.
func PartyNamed(name string) Party { return Party(maphash.String(seed, name)) }

var seed = maphash.MakeSeed()

// Costly returns the party that takes the turns for work of p that costs many times the usual work of
// its kind. So cheap work of p does not wait behind it.
func (p Party) Costly() Party { return ^p }

// key returns the key of p's turns for w.
func (p Party) key(w Work) uint64 { return uint64(p) + uint64(w)*0x9e3779b97f4a7c15 }

const (
	// burst is how much CPU the share saves while nothing uses it, in seconds.
	burst = 0.02
	// maxCost bounds what one turn pays, in seconds. A turn is timed with the wall clock, and a machine
	// may be suspended during a turn.
	maxCost = 0.1
	// firstCost is the usual cost of a kind of work before its first turn, in seconds.
	firstCost = 200e-6
	// memory is of how many turns the usual cost is the mean.
	memory = 8
	// grows is by which factor the bound rises in a window in which requests do not wait for CPU: from
	// a quarter of a core to a core in 0.7 s.
	grows = 1.25
)

// Share is the share of the CPU. A nil Share bounds nothing. Make one with New. It is safe for
// concurrent use.
type Share struct {
	cores float64
	epoch time.Time

	mu      sync.Mutex // guards the fields below
	limit   float64    // cores that the work may always use
	patient time.Duration
	// allowed is how many cores the work may use now: limit <= allowed <= max(limit, cores). The work is
	// unbounded if it is at its maximum.
	allowed float64
	tokens  float64 // CPU seconds that the work may use at once; below 0 the work waits
	filled  time.Time
	free    int     // places
	window  float64 // CPU seconds since the last Observe
	queues  fairqueue.Queues[*waiter]
	timer   *time.Timer // calls serve when tokens are free; nil until the first wait for tokens
	counts  [works]counts
}

// counts are the figures of a kind of work.
type counts struct {
	seconds  float64 // of CPU
	usual    float64 // usual cost of a turn, in seconds
	waiting  int
	timeouts uint64
}

// waiter is a call that waits for its turn. Share.mu guards its fields until ready is closed.
type waiter struct {
	fairqueue.Item[*waiter]

	ready chan struct{} // closed when turn is set
	turn  Turn
}

// New returns a share that is unbounded until requests wait for CPU. See Configure for its parameters.
func New(limit float64, patient time.Duration) *Share {
	procs := runtime.GOMAXPROCS(0)
	s := &Share{cores: float64(procs), epoch: time.Now(), free: max(1, procs/2), tokens: burst}
	s.filled = s.epoch
	for w := range s.counts {
		s.counts[w].usual = firstCost
	}
	s.Configure(limit, patient)
	s.allowed = s.most()
	return s
}

// Configure sets how many cores the work may use in any case, and for how long requests may wait for
// CPU without a bound on the work.
func (s *Share) Configure(limit float64, patient time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.patient = limit, patient
	s.allowed = min(max(s.allowed, limit), s.most())
}

func (s *Share) most() float64 { return max(s.limit, s.cores) }

func (s *Share) unbounded() bool { return s.allowed >= s.most() }

// Observe sets the bound for the next window. least is the standing lag of the last window, and length
// its length; see lag.Meter.OnWindow.
//
// While requests wait, the bound falls to half of what the work has used, and at last to limit.
// Otherwise it rises: work that uses only idle CPU makes no request wait.
func (s *Share) Observe(least, length time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.fill(now)
	used := s.window / length.Seconds()
	s.window = 0
	if least > s.patient {
		s.allowed = max(s.limit, min(s.allowed, used)/2)
	} else {
		s.allowed = min(s.allowed*grows, s.most())
	}
	s.serve(now)
}

// fill adds the tokens of the time since the last call.
func (s *Share) fill(now time.Time) {
	s.tokens = min(s.tokens+now.Sub(s.filled).Seconds()*s.allowed, burst)
	s.filled = now
}

// Turn is the right to compute. Its zero value is the right of a nil Share.
type Turn struct {
	share   *Share
	began   time.Duration // since share.epoch
	held    time.Duration // before began
	advance float64       // tokens that were paid in advance
	payer   exchange.Payer
	work    Work
}

// Acquire waits until it is p's turn, and returns os.ErrDeadlineExceeded if that takes until the
// deadline. The caller must release the turn before it waits for a peer, and must not acquire another
// turn before.
func (s *Share) Acquire(w Work, p Party, deadline time.Time) (Turn, error) {
	return s.acquire(w, p, deadline, nil)
}

// acquire is Acquire that also ends, with net.ErrClosed, when gone is closed.
func (s *Share) acquire(w Work, p Party, deadline time.Time, gone <-chan struct{}) (Turn, error) {
	turn, waiting := s.begin(w, p)
	if waiting == nil {
		return turn, nil
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-waiting.ready:
		return waiting.turn, nil
	case <-gone:
		return s.leave(w, waiting, net.ErrClosed)
	case <-timer.C:
		return s.leave(w, waiting, os.ErrDeadlineExceeded)
	}
}

// begin returns a turn, or the waiter of a call that must wait.
func (s *Share) begin(w Work, p Party) (Turn, *waiter) {
	if s == nil {
		return Turn{}, nil
	}
	key, now := p.key(w), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(now)
	if s.unbounded() && !w.exclusive() || s.queues.Active() == 0 && s.may(w) {
		return s.start(w, s.queues.LendTo(key), now), nil
	}
	waiting := &waiter{ready: make(chan struct{}), turn: Turn{work: w}}
	waiting.Value = waiting
	s.queues.Push(&waiting.Item, key, now)
	s.counts[w].waiting++
	s.serve(now)
	return Turn{}, waiting
}

// may reports whether work of this kind may begin now.
func (s *Share) may(w Work) bool {
	return (s.unbounded() || s.tokens > 0) && (s.free > 0 || !w.exclusive())
}

// start begins a turn. The usual cost is paid in advance, so that works that begin at the same time do
// not share the same tokens.
func (s *Share) start(w Work, payer exchange.Payer, now time.Time) Turn {
	t := Turn{share: s, began: now.Sub(s.epoch), advance: s.counts[w].usual, payer: payer, work: w}
	s.tokens -= t.advance
	if w.exclusive() {
		s.free--
	}
	return t
}

// serve gives turns to those that wait, as far as places and tokens are free.
func (s *Share) serve(now time.Time) {
	for first := s.queues.First(); first != nil; first = s.queues.First() {
		one := first.Value
		w := one.turn.work
		if !s.may(w) {
			break
		}
		s.queues.Remove(first)
		s.counts[w].waiting--
		one.turn = s.start(w, s.queues.Lend(first), now)
		close(one.ready)
	}
	if s.queues.Active() == 0 || s.unbounded() || s.tokens > 0 {
		return
	}
	wait := time.Duration(-s.tokens/s.allowed*1e9) + time.Microsecond
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.refilled)
	} else {
		s.timer.Reset(wait)
	}
}

// refilled is called when tokens are free again.
func (s *Share) refilled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.fill(now)
	s.serve(now)
}

// leave ends the wait of a call with err, unless its turn has come meanwhile.
func (s *Share) leave(w Work, waiting *waiter, err error) (Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-waiting.ready:
		return waiting.turn, nil
	default:
	}
	s.queues.Remove(&waiting.Item)
	s.counts[w].waiting--
	if err != net.ErrClosed { //nolint:errorlint // it is the error of acquire
		s.counts[w].timeouts++
	}
	s.serve(time.Now()) // the next one in turn may need less
	return Turn{}, err
}

// Pause lets requests that are ready run. The time of the pause costs nothing.
func (t *Turn) Pause() {
	if t.share == nil {
		time.Sleep(time.Microsecond)
		return
	}
	t.held += time.Since(t.share.epoch) - t.began
	time.Sleep(time.Microsecond)
	t.began = time.Since(t.share.epoch)
}

// Release ends the turn, and pays for it. A second Release has no effect.
func (t *Turn) Release() {
	s := t.share
	if s == nil {
		return
	}
	now := time.Now()
	held := t.held + now.Sub(s.epoch) - t.began
	cost := min(held.Seconds(), maxCost)
	s.mu.Lock()
	s.fill(now)
	s.tokens = max(s.tokens+t.advance-cost, -maxCost)
	s.window += cost
	n := &s.counts[t.work]
	n.seconds += cost
	n.usual += (cost - n.usual) / memory
	if t.work.exclusive() {
		s.free++
	}
	s.queues.Return(t.payer, time.Duration(cost*1e9))
	s.serve(now)
	s.mu.Unlock()
	*t = Turn{}
}
