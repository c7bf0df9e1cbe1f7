// Package overload decides which requests adbuffer refuses while it has too little CPU for all of them. The signal of
// an overload is adbuffer's own lag, which package lag measures.
package overload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Priority says which requests are refused first. The zero value is Normal.
type Priority uint8

// The priorities.
const (
	Normal    Priority = iota
	Sheddable          // refused first
	Critical           // refused last

	// Priorities is the number of priorities, for arrays indexed by Priority.
	Priorities
)

var names = [Priorities]string{Normal: "normal", Sheddable: "sheddable", Critical: "critical"}

// String returns the name that the configuration and metrics use.
func (p Priority) String() string { return names[p] }

// refusalOrder lists the priorities in the order in which their requests are refused.
var refusalOrder = [Priorities]Priority{Sheddable, Normal, Critical}

// Options are the settings of server.overload. Package config explains the tags.
type Options struct {
	Enabled bool          `yaml:"enabled" default:"true"`
	DryRun  bool          `yaml:"dry_run"`                                  // count the requests that would be refused, but admit them
	Target  time.Duration `yaml:"target" default:"5ms" min:"1ms" max:"10s"` // the standing lag up to which nothing is refused
}

// Gate decides which requests are refused. The zero Gate refuses nothing until Configure is called. A nil Gate
// refuses nothing. It is safe for concurrent use.
type Gate struct {
	overloaded atomic.Bool // requests are counted, and some refused, only while it is true
	verdict    atomic.Pointer[verdict]
	counts     [Priorities]counts

	mu         sync.Mutex // guards the fields below
	settings   Options
	controller controller
	lastCounts [Priorities]windowCounts // the counts at the end of the last window
	since      time.Time                // when the overload began; zero = there is none
	lag        time.Duration            // the standing lag of the last window
	overLag    time.Duration            // the last standing lag above the target
}

// counts counts the requests of a priority.
type counts struct{ passed, refused, dryRefused atomic.Uint64 }

// windowCounts holds the values of counts at the end of a window.
type windowCounts struct{ passed, refused uint64 }

// verdict says what is refused until the end of the next window. It is immutable.
type verdict struct {
	dryRun   bool
	shares   [Priorities]float64 // the share of each priority's requests that is refused
	pause    time.Duration
	refusals [Priorities]Refusal
}

// Refusal says why a request is refused, and what becomes of its connection.
type Refusal struct {
	Detail string
	// Pause is the mean time for which the request's connection must not be read.
	Pause time.Duration
}

// RetryAfter is the value of the field Retry-After in the response to a refused request. It is the shortest, since
// the field has whole seconds.
const RetryAfter = time.Second

// Configure sets the settings. If they differ from the current settings, the Gate forgets the overload and all that
// it has learned.
func (g *Gate) Configure(s Options) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s != g.settings {
		g.settings = s
		g.resetLocked()
	}
}

func (g *Gate) resetLocked() {
	g.controller, g.since = newController(), time.Time{}
	g.overloaded.Store(false)
	g.verdict.Store(nil)
}

// Overloaded reports whether adbuffer is overloaded. It costs an atomic load.
func (g *Gate) Overloaded() bool { return g != nil && g.overloaded.Load() }

// Refuse returns nil if a request is admitted, and otherwise a Refusal, which the caller must not change. While
// adbuffer is not overloaded, a call costs one atomic load.
func (g *Gate) Refuse(p Priority) *Refusal {
	if !g.Overloaded() {
		return nil
	}
	n := &g.counts[p]
	r := g.verdict.Load()
	if r == nil || r.shares[p] == 0 || rand.Float64() >= r.shares[p] {
		n.passed.Add(1)
		return nil
	}
	if r.dryRun {
		n.dryRefused.Add(1)
		n.passed.Add(1)
		return nil
	}
	n.refused.Add(1)
	return &r.refusals[p]
}

// Observe decides which requests are refused in the next window. minLag is the standing lag of the last window, and
// length the length of that window; see lag.Meter.OnWindow.
func (g *Gate) Observe(minLag, length time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lag = minLag
	if minLag > g.settings.Target {
		g.overLag = minLag
	}
	if !g.settings.Enabled || g.since.IsZero() && minLag <= g.settings.Target {
		return
	}
	var load windowLoad
	for p := range Priorities {
		current := windowCounts{g.counts[p].passed.Load(), g.counts[p].refused.Load()}
		load.arrived[p] = float64(current.passed - g.lastCounts[p].passed + current.refused - g.lastCounts[p].refused)
		load.refused += float64(current.refused - g.lastCounts[p].refused)
		g.lastCounts[p] = current
	}
	if g.since.IsZero() { // requests were not counted before the overload
		g.since, load = time.Now(), windowLoad{}
	}
	c := &g.controller
	c.observe(float64(minLag)/float64(g.settings.Target), length, &load, g.settings.DryRun)
	if c.shareToRefuse() == 0 && minLag <= g.settings.Target {
		g.resetLocked()
		return
	}
	g.verdict.Store(g.verdictLocked())
	g.overloaded.Store(true)
}

func (g *Gate) verdictLocked() *verdict {
	c := &g.controller
	r := &verdict{dryRun: g.settings.DryRun, shares: c.sharesByPriority(), pause: c.pause}
	for p := range Priorities {
		if r.shares[p] > 0 {
			r.refusals[p] = Refusal{Pause: r.pause, Detail: fmt.Sprintf(
				"adbuffer has too little CPU: every request waits %v for CPU, and %v is allowed; adbuffer refuses %.0f %% of the requests with priority %v; see server.overload and routes[].priority",
				g.overLag.Round(time.Millisecond), g.settings.Target, math.Ceil(100*r.shares[p]), p)}
		}
	}
	return r
}

// Count returns how many requests of a priority were refused since the start, and how many only because of DryRun
// were not.
func (g *Gate) Count(p Priority) (refused, dry uint64) {
	if g == nil {
		return 0, 0
	}
	return g.counts[p].refused.Load(), g.counts[p].dryRefused.Load()
}

// Lag returns the standing lag of the last window.
func (g *Gate) Lag() time.Duration {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lag
}

// State is what operators see of an overload.
type State struct {
	Overloaded bool `json:"overloaded"`
	// Since is when the overload began, or nil if there is no overload. An overload ends when the share of requests to
	// refuse is 0 and the standing lag is within the target.
	Since *time.Time `json:"since,omitempty"`
	// LagMs is the standing lag: the smallest lag of the last window, which is 100 ms or longer. During an overload,
	// it is the last standing lag above the target, since refusals go on for a while after the lag has fallen.
	LagMs    float64            `json:"lag_ms"`
	TargetMs float64            `json:"target_ms"`          // server.overload.target
	DryRun   bool               `json:"dry_run"`            // server.overload.dry_run: nothing is refused
	Refusing map[string]float64 `json:"refusing,omitempty"` // the share of requests refused (but for DryRun), by priority
	PauseMs  float64            `json:"pause_ms,omitempty"` // how long a refused request's connection is not read, on average
	Refused  map[string]uint64  `json:"refused"`            // refused requests since the start, by priority
}

// State returns the current state.
func (g *Gate) State() State {
	if g == nil {
		return State{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Overloaded: !g.since.IsZero(), LagMs: milliseconds(g.lag), TargetMs: milliseconds(g.settings.Target), DryRun: g.settings.DryRun, Refused: make(map[string]uint64)}
	for p, name := range names {
		s.Refused[name] = g.counts[p].refused.Load()
	}
	if !s.Overloaded {
		return s
	}
	s.LagMs = milliseconds(g.overLag)
	s.Since, s.Refusing = new(g.since), make(map[string]float64)
	if r := g.verdict.Load(); r != nil {
		for p, share := range r.shares {
			if share > 0 {
				s.Refusing[names[p]], s.PauseMs = share, milliseconds(r.pause)
			}
		}
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
