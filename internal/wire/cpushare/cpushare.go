// Package cpushare bounds the CPU of work beside the forwarding of requests: TLS handshakes, scrapes, the decoding of
// large compressed bodies and dry runs. Without a bound, a peer that provokes such work would make the requests of all
// clients wait, and the overload gate would refuse them.
//
// The bound holds only while requests wait for CPU, which Share.Observe learns from package lag. At other times only
// the number of works that compute at the same time is bounded, for the kinds of work that need a place. Parties take
// turns, so that no party takes the whole share: see Party.
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
	"adbuffer/internal/wire/fairqueue"
)

// Work is a kind of work that runs in a Share.
type Work uint8

// The kinds of work.
const (
	ClientHandshake Work = iota // a TLS handshake with a client
	AdminHandshake              // a TLS handshake at the admin listener
	SSPHandshake                // a TLS handshake with an SSP
	Scrape                      // a response of /metrics
	Decode                      // the decoding of a large compressed body
	DryRun                      // a dry run of a configuration on the sample of the traffic

	works
)

var workNames = [works]string{"client_handshake", "admin_handshake", "ssp_handshake", "scrape", "decode", "dry_run"}

// String returns the name that metrics use.
func (w Work) String() string { return workNames[w] }

// needsPlace reports whether work of this kind must hold a place while it computes, even while the CPU of the Share
// is unbounded. There is one place for every two cores, and at least one. Peers can begin any number of such works at
// once, while dials, scrapes and dry runs have limits of their own.
func (w Work) needsPlace() bool { return w != SSPHandshake && w != Scrape && w != DryRun }

// Party identifies, as a hash, who causes work. The turns are shared fairly between parties.
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

// Costly returns a second party of p, for work that costs many times the usual work of its kind. Such work then does
// not delay the cheap work of p.
func (p Party) Costly() Party { return ^p }

// key returns the key under which work of kind w waits for p's turn.
func (p Party) key(w Work) uint64 { return uint64(p) + uint64(w)*0x9e3779b97f4a7c15 }

const (
	// burst is the largest amount of unused CPU, in seconds, that the share saves up.
	burst = 0.02
	// maxCost bounds the cost of one turn, in seconds. A turn is timed with the wall clock, and the machine may be
	// suspended during a turn.
	maxCost = 0.1
	// firstCost is the usual cost of a kind of work before its first turn, in seconds.
	firstCost = 200e-6
	// costSamples is the number of turns over which the usual cost is averaged.
	costSamples = 8
	// allowedGrowth is the factor by which the bound rises after a window in which requests did not wait for CPU:
	// from a quarter of a core to a core in 0.7 s.
	allowedGrowth = 1.25
)

// Share bounds the CPU that all such work uses together. A nil Share bounds nothing. Shares are made by New, and are
// safe for concurrent use.
type Share struct {
	cores float64
	epoch time.Time

	mu     sync.Mutex // guards the fields below
	limit  float64    // cores that the work may always use: server.background_cpu
	maxLag time.Duration
	// allowed is how many cores the work may use now: limit <= allowed <= maxAllowed(). At the maximum the work
	// needs no tokens.
	allowed      float64
	tokens       float64 // CPU seconds that the work may use at once; at 0 and below, the work waits
	lastFill     time.Time
	freePlaces   int     // places that no turn holds; see needsPlace
	usedInWindow float64 // CPU seconds used since the last Observe
	queues       fairqueue.Queues[*waiter]
	timer        *time.Timer // calls serve when tokens are free; nil until the first wait for tokens
	counts       [works]counts
}

// counts holds what is counted for one kind of work.
type counts struct {
	seconds   float64 // of CPU
	usualCost float64 // mean cost of a turn, in seconds
	timeouts  uint64
}

// waiter is a call of Acquire that waits for its turn. Share.mu guards its fields until ready is closed.
type waiter struct {
	fairqueue.Item[*waiter]

	ready chan struct{} // closed when turn is set
	turn  Turn
}

// New returns a share that is unbounded until requests wait for CPU. See Configure for its parameters.
func New(limit float64, maxLag time.Duration) *Share {
	procs := runtime.GOMAXPROCS(0)
	s := &Share{cores: float64(procs), epoch: time.Now(), freePlaces: max(1, procs/2), tokens: burst}
	s.lastFill = s.epoch
	for w := range s.counts {
		s.counts[w].usualCost = firstCost
	}
	s.Configure(limit, maxLag)
	s.allowed = s.maxAllowed()
	return s
}

// Configure sets limit, the number of cores that the work may always use, and maxLag, the standing lag of requests
// above which the work is bounded.
func (s *Share) Configure(limit float64, maxLag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.maxLag = limit, maxLag
	s.allowed = min(max(s.allowed, limit), s.maxAllowed())
}

func (s *Share) maxAllowed() float64 { return max(s.limit, s.cores) }

func (s *Share) unbounded() bool { return s.allowed >= s.maxAllowed() }

// Observe sets the bound for the next window. minLag is the standing lag of the last window, and length the length of
// that window; see lag.Meter.OnWindow.
//
// While requests wait, each window lowers the bound to half of what the work has used, down to limit. Otherwise the
// bound rises, since work that uses only idle CPU makes no request wait.
func (s *Share) Observe(minLag, length time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.fill(now)
	used := s.usedInWindow / length.Seconds()
	s.usedInWindow = 0
	if minLag > s.maxLag {
		s.allowed = max(s.limit, min(s.allowed, used)/2)
	} else {
		s.allowed = min(s.allowed*allowedGrowth, s.maxAllowed())
	}
	s.serve(now)
}

// fill adds the tokens for the time since the last call.
func (s *Share) fill(now time.Time) {
	s.tokens = min(s.tokens+now.Sub(s.lastFill).Seconds()*s.allowed, burst)
	s.lastFill = now
}

// Turn is the right to compute. The zero Turn is what a nil Share gives.
type Turn struct {
	share   *Share
	start   time.Duration // when the turn began, or its last pause ended; since share.epoch
	held    time.Duration // time computed before start
	advance float64       // tokens that start has paid in advance
	payer   fairqueue.Payer
	work    Work
}

// Acquire waits until it is p's turn. It returns os.ErrDeadlineExceeded if the deadline comes first. The caller must
// release the turn before it waits for a peer, and before it acquires another turn.
func (s *Share) Acquire(w Work, p Party, deadline time.Time) (Turn, error) {
	return s.acquire(w, p, deadline, nil)
}

// acquire is Acquire, except that it returns net.ErrClosed when peerClosed is closed.
func (s *Share) acquire(w Work, p Party, deadline time.Time, peerClosed <-chan struct{}) (Turn, error) {
	turn, waiting := s.startOrQueue(w, p)
	if waiting == nil {
		return turn, nil
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-waiting.ready:
		return waiting.turn, nil
	case <-peerClosed:
		return s.cancelWait(w, waiting, net.ErrClosed)
	case <-timer.C:
		return s.cancelWait(w, waiting, os.ErrDeadlineExceeded)
	}
}

// startOrQueue returns a turn if the work may start at once, and otherwise a waiter that it has queued.
func (s *Share) startOrQueue(w Work, p Party) (Turn, *waiter) {
	if s == nil {
		return Turn{}, nil
	}
	key, now := p.key(w), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(now)
	if s.unbounded() && !w.needsPlace() || s.queues.Active() == 0 && s.canStart(w) {
		return s.start(w, s.queues.LendTo(key), now), nil
	}
	waiting := &waiter{ready: make(chan struct{}), turn: Turn{work: w}}
	waiting.Value = waiting
	s.queues.Push(&waiting.Item, key, now)
	s.serve(now)
	return Turn{}, waiting
}

// canStart reports whether work of this kind may start now, if no other work waits.
func (s *Share) canStart(w Work) bool {
	return (s.unbounded() || s.tokens > 0) && (s.freePlaces > 0 || !w.needsPlace())
}

// start begins a turn. The turn pays the usual cost in advance, so that works that start at the same time do not use
// the same tokens.
func (s *Share) start(w Work, payer fairqueue.Payer, now time.Time) Turn {
	t := Turn{share: s, start: now.Sub(s.epoch), advance: s.counts[w].usualCost, payer: payer, work: w}
	s.tokens -= t.advance
	if w.needsPlace() {
		s.freePlaces--
	}
	return t
}

// serve gives turns to waiting calls, as far as places and tokens are free.
func (s *Share) serve(now time.Time) {
	for first := s.queues.First(); first != nil; first = s.queues.First() {
		waiting := first.Value
		w := waiting.turn.work
		if !s.canStart(w) {
			break
		}
		s.queues.Remove(first)
		waiting.turn = s.start(w, s.queues.Lend(first), now)
		close(waiting.ready)
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

// cancelWait ends the wait of a call with err. If the turn has come meanwhile, it returns the turn instead.
func (s *Share) cancelWait(w Work, waiting *waiter, err error) (Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-waiting.ready:
		return waiting.turn, nil
	default:
	}
	s.queues.Remove(&waiting.Item)
	if err != net.ErrClosed { //nolint:errorlint // it is the error of acquire
		s.counts[w].timeouts++
	}
	s.serve(time.Now()) // the call that is next now may need no place
	return Turn{}, err
}

// Pause lets requests that are ready run. The turn does not pay for the pause.
func (t *Turn) Pause() {
	if t.share == nil {
		time.Sleep(time.Microsecond)
		return
	}
	t.held += time.Since(t.share.epoch) - t.start
	time.Sleep(time.Microsecond)
	t.start = time.Since(t.share.epoch)
}

// Release ends the turn, and pays for the time it took. A second Release has no effect.
func (t *Turn) Release() {
	s := t.share
	if s == nil {
		return
	}
	now := time.Now()
	held := t.held + now.Sub(s.epoch) - t.start
	cost := min(held.Seconds(), maxCost)
	s.mu.Lock()
	s.fill(now)
	s.tokens = max(s.tokens+t.advance-cost, -maxCost)
	s.usedInWindow += cost
	n := &s.counts[t.work]
	n.seconds += cost
	n.usualCost += (cost - n.usualCost) / costSamples
	if t.work.needsPlace() {
		s.freePlaces++
	}
	s.queues.Return(t.payer, time.Duration(cost*1e9))
	s.serve(now)
	s.mu.Unlock()
	*t = Turn{}
}
