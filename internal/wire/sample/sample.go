// Package sample keeps a sample of the requests of the last minutes in memory: for each minute a reservoir, so that
// every request of the minute is kept with the same probability.
package sample

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/exchange"
)

// Limits are the settings of admin.sample, except max_change. Package config explains the tags.
type Limits struct {
	Requests int           `yaml:"requests" min:"0" max:"1000000"` // how many requests are kept at most; 0 = none
	MaxAge   time.Duration `yaml:"max_age" default:"1h" min:"5m" max:"24h"`
	MaxBytes int           `yaml:"max_bytes" default:"33554432" min:"1048576" max:"1073741824"` // memory of the kept requests
}

// MaxBody is the length of the longest body that is kept. A body may also take at most 1/bodiesPerMinute of the bytes of a
// minute: a request that exceeds them could never be kept, and the sample would have too many small requests.
const (
	MaxBody         = 64 << 10
	bodiesPerMinute = 16
)

// Request is a kept request. It never changes.
type Request struct {
	ID     string
	Method string
	HTTP2  bool
	HTTP10 bool
	Target []byte // as the client sent it, with the values of secret parameters replaced
	Fields []byte // lines with an empty line at the end, written by header.RequestFields.AppendMasked
	Client netip.Addr
	// Body is the whole body, in which addresses are shortened, or empty if HasBody is false. BodyBytes is the length of
	// the body before that, as far as it is known.
	Body      []byte
	BodyBytes int
	HasBody   bool // false: the body was not read to its end, is too long, or may hold addresses that cannot be shortened
	Route     string
	Asked     []Asked
}

// Asked is an SSP's part in a kept request: Outcome says how the SSP responded, or why it got no request.
type Asked struct {
	SSP     string
	Outcome exchange.Outcome
	Hold    time.Duration // from acquiring the place to the end of the exchange, which may have failed; 0 = no place, or the SSP's part was abandoned
}

// Costs of the parts of a Request beside its bytes, in bytes of memory, rounded up.
const (
	requestCost = 320
	askedCost   = 64
)

func (q *Request) cost() int64 {
	return int64(requestCost + len(q.ID) + cap(q.Target) + cap(q.Fields) + cap(q.Body) + askedCost*cap(q.Asked))
}

// Sample is a sample of requests. It is safe for concurrent use.
type Sample struct {
	length  time.Duration // of a Minute
	minutes int           // how many minutes are kept
	room    int           // how many requests of a minute are kept
	bytes   int64         // how many bytes the requests of a minute may hold
	maxBody int
	maxAge  time.Duration
	budget  *exchange.Budget // counts the bytes that are held

	current atomic.Pointer[Minute]

	mu     sync.Mutex // guards the fields below
	kept   []*Minute  // the oldest first; the last one is current
	closed bool
}

// Minute is a part of the sampled time, which begins with its first request. It lasts a minute, or longer if max_age is no
// whole number of minutes, or if fewer requests than minutes are kept.
type Minute struct {
	from time.Time
	seen atomic.Uint64
	room atomic.Int64 // how many requests may be kept; lowered for the rest of the minute when they hold too many bytes

	requests []*Request // guarded by Sample.mu, as are the fields below
	bytes    int64
	expiry   *time.Timer
}

// New returns an empty sample, or nil if o keeps no requests. budget counts the bytes that the sample holds.
func New(o Limits, budget *exchange.Budget) *Sample {
	if o.Requests == 0 {
		return nil
	}
	s := &Sample{maxAge: o.MaxAge, budget: budget, minutes: o.minutes()}
	s.length = o.MaxAge / time.Duration(s.minutes)
	s.room, s.bytes, s.maxBody = o.Requests/s.minutes, int64(o.MaxBytes/s.minutes), o.MaxBody()
	return s
}

func (o *Limits) minutes() int { return min(int(o.MaxAge/time.Minute), o.Requests) }

// MaxBody returns the length of the longest body that a sample with these limits keeps. There must be Requests.
func (o *Limits) MaxBody() int { return min(MaxBody, o.MaxBytes/o.minutes()/bodiesPerMinute) }

// MaxBody returns the length of the longest body that s keeps.
func (s *Sample) MaxBody() int { return s.maxBody }

// Draw counts a request that ended at now, and draws whether it is kept. If so, it returns the minute, which the caller
// passes to Keep with the request; otherwise it returns nil. It allocates only at the start of a minute.
func (s *Sample) Draw(now time.Time) *Minute {
	m := s.current.Load()
	if m == nil || now.Sub(m.from) >= s.length {
		m = s.begin(now)
		if m == nil {
			return nil
		}
	}
	n := m.seen.Add(1)
	if rand.Uint64N(n) >= uint64(m.room.Load()) {
		return nil
	}
	return m
}

// begin returns the minute of now, which it begins if necessary, or nil if s is closed.
func (s *Sample) begin(now time.Time) *Minute {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.current.Load()
	switch {
	case s.closed:
		return nil
	case m != nil && now.Sub(m.from) < s.length:
		return m // another request has begun it
	}
	for len(s.kept) >= s.minutes {
		s.dropOldestLocked()
	}
	m = &Minute{from: now}
	m.room.Store(int64(s.room))
	m.expiry = time.AfterFunc(s.maxAge, func() { s.expire(m) })
	s.kept = append(s.kept, m)
	s.current.Store(m)
	return m
}

// Keep keeps a request for which Draw returned m.
func (s *Sample) Keep(m *Minute, q *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.kept, m) {
		return // it was dropped in between
	}
	before := m.bytes
	if len(m.requests) >= int(m.room.Load()) && len(m.requests) > 0 {
		m.removeOne()
	}
	m.requests = append(m.requests, q)
	m.bytes += q.cost()
	// Removing requests at random keeps the sample uniform. m.room must not rise again: later requests would then be more
	// likely to be kept than earlier ones.
	for m.bytes > s.bytes {
		m.removeOne()
		m.room.Store(int64(len(m.requests)))
	}
	s.hold(m.bytes - before)
}

// removeOne removes a request that it draws at random.
func (m *Minute) removeOne() {
	i, last := rand.IntN(len(m.requests)), len(m.requests)-1
	m.bytes -= m.requests[i].cost()
	m.requests[i], m.requests[last] = m.requests[last], nil
	m.requests = m.requests[:last]
}

func (s *Sample) hold(n int64) {
	if n < 0 {
		s.budget.Release(-n)
	} else {
		s.budget.Hold(n)
	}
}

func (s *Sample) dropOldestLocked() {
	m := s.kept[0]
	m.expiry.Stop()
	s.budget.Release(m.bytes)
	m.requests, m.bytes = nil, 0
	s.kept = slices.Delete(s.kept, 0, 1)
	s.current.CompareAndSwap(m, nil)
}

// expire drops m and the minutes before it.
func (s *Sample) expire(m *Minute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.Contains(s.kept, m) {
		s.dropOldestLocked()
	}
}

// Clear drops all requests. s may be nil.
func (s *Sample) Clear() { s.clear(false) }

// Close drops all requests, and keeps none from now on. s may be nil.
func (s *Sample) Close() { s.clear(true) }

func (s *Sample) clear(closed bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 0 {
		s.dropOldestLocked()
	}
	s.closed = s.closed || closed
}

// Held returns how many requests are kept, and how many bytes of memory they hold. s may be nil.
func (s *Sample) Held() (requests int, bytes int64) {
	if s == nil {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.kept {
		requests, bytes = requests+len(m.requests), bytes+m.bytes
	}
	return requests, bytes
}

// Stratum is what the sample has of a minute: Requests were drawn at random from the Seen requests that ended within
// Length from From on.
type Stratum struct {
	From     time.Time
	Length   time.Duration
	Seen     uint64
	Requests []*Request
}

// Strata returns the minutes of the sample, the oldest first, as of now. s may be nil.
func (s *Sample) Strata(now time.Time) (all []Stratum) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.kept {
		all = append(all, Stratum{From: m.from, Length: min(s.length, now.Sub(m.from)), Seen: m.seen.Load(), Requests: slices.Clone(m.requests)})
	}
	return all
}
