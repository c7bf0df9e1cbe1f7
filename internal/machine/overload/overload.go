// Package overload refuses requests while adbuffer has more of them than CPU. Its signal is adbuffer's
// own lag, which package lag measures.
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

// refusedInOrder are all priorities, the first to be refused in front.
var refusedInOrder = [Priorities]Priority{Sheddable, Normal, Critical}

// Options are the settings server.overload: which requests are refused while adbuffer has too little CPU.
// Package config says what the tags mean.
type Options struct {
	Enabled bool          `yaml:"enabled" default:"true"`
	DryRun  bool          `yaml:"dry_run"`                                  // only count
	Target  time.Duration `yaml:"target" default:"5ms" min:"1ms" max:"10s"` // own lag up to which nothing is refused
}

// Gate decides which requests are refused. The zero value refuses nothing until Configure. A nil Gate
// refuses nothing. It is safe for concurrent use.
type Gate struct {
	counting atomic.Bool // adbuffer is overloaded: each request counts
	rule     atomic.Pointer[rule]
	counts   [Priorities]counts

	mu         sync.Mutex // guards the fields below
	settings   Options
	controller controller
	seen       [Priorities]seen // of the last window
	since      time.Time        // when the overload began; zero = there is none
	lag        time.Duration    // of the last window
}

// counts counts the requests of a priority.
type counts struct{ passed, refused, dry atomic.Uint64 }

// seen are counts at the end of a window.
type seen struct{ passed, refused uint64 }

// rule is what a window has decided. It does not change.
type rule struct {
	dryRun   bool
	shares   [Priorities]float64 // of the requests that are refused
	pause    time.Duration
	refusals [Priorities]Refusal
}

// Refusal is the reason for a refused request.
type Refusal struct {
	Detail string
	// Pause is how long its connection is not to be read, on average.
	Pause time.Duration
}

// RetryAfter is the value of the field Retry-After in the response to a refused request. The field has
// whole seconds, so this is the shortest.
const RetryAfter = time.Second

// Configure sets the settings. Without Enabled all that was learned is forgotten.
func (g *Gate) Configure(s Options) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s != g.settings {
		g.settings = s
		g.endLocked()
	}
}

func (g *Gate) endLocked() {
	g.controller, g.since = newController(), time.Time{}
	g.counting.Store(false)
	g.rule.Store(nil)
}

// Overloaded reports whether adbuffer is overloaded. It costs an atomic load.
func (g *Gate) Overloaded() bool { return g != nil && g.counting.Load() }

// Refuse returns nil if a request may pass. While adbuffer is not overloaded, that costs one atomic
// load. The caller must not change the Refusal.
func (g *Gate) Refuse(p Priority) *Refusal {
	if !g.Overloaded() {
		return nil
	}
	n := &g.counts[p]
	r := g.rule.Load()
	if r == nil || r.shares[p] == 0 || rand.Float64() >= r.shares[p] {
		n.passed.Add(1)
		return nil
	}
	if r.dryRun {
		n.dry.Add(1)
		n.passed.Add(1)
		return nil
	}
	n.refused.Add(1)
	return &r.refusals[p]
}

// Observe decides about the requests of the next window. least is the standing lag of the last one,
// and length its length; see lag.Meter.OnWindow.
func (g *Gate) Observe(least, length time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lag = least
	if !g.settings.Enabled || g.since.IsZero() && least <= g.settings.Target {
		return
	}
	var now load
	for p := range Priorities {
		is := seen{g.counts[p].passed.Load(), g.counts[p].refused.Load()}
		now.arrived[p] = float64(is.passed - g.seen[p].passed + is.refused - g.seen[p].refused)
		now.refused += float64(is.refused - g.seen[p].refused)
		g.seen[p] = is
	}
	if g.since.IsZero() { // the counts are not of this window
		g.since, now = time.Now(), load{}
	}
	c := &g.controller
	c.observe(float64(least)/float64(g.settings.Target), length, &now, g.settings.DryRun)
	if c.share() == 0 && least <= g.settings.Target {
		g.endLocked()
		return
	}
	g.rule.Store(g.ruleLocked())
	g.counting.Store(true)
}

func (g *Gate) ruleLocked() *rule {
	c := &g.controller
	r := &rule{dryRun: g.settings.DryRun, shares: c.shares(), pause: c.pause}
	for p := range Priorities {
		if r.shares[p] > 0 {
			r.refusals[p] = Refusal{Pause: r.pause, Detail: fmt.Sprintf(
				"adbuffer has too little CPU: all requests wait %v for it, and %v are allowed; it refuses %.0f %% of those with priority %v; see server.overload and routes[].priority",
				g.lag.Round(time.Millisecond), g.settings.Target, math.Ceil(100*r.shares[p]), p)}
		}
	}
	return r
}

// Count returns how many requests of a priority were refused since the start, and how many would have
// been without DryRun.
func (g *Gate) Count(p Priority) (refused, dry uint64) {
	if g == nil {
		return 0, 0
	}
	return g.counts[p].refused.Load(), g.counts[p].dry.Load()
}

// Lag returns the standing lag that Observe was last told.
func (g *Gate) Lag() time.Duration {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lag
}

// State is the overload as operators see it.
type State struct {
	Overloaded bool `json:"overloaded"`
	// Since is when the overload began, nil for none. It ends when nothing is refused any more.
	Since    *time.Time         `json:"since,omitempty"`
	LagMs    float64            `json:"lag_ms"`             // the least lag of the last 100 ms
	TargetMs float64            `json:"target_ms"`          // server.overload.target
	DryRun   bool               `json:"dry_run"`            // nothing is refused
	Refusing map[string]float64 `json:"refusing,omitempty"` // share of the requests, by priority
	PauseMs  float64            `json:"pause_ms,omitempty"` // for which a refused connection is not read
	Refused  map[string]uint64  `json:"refused"`            // requests since the start, by priority
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
	s.Since, s.Refusing = new(g.since), make(map[string]float64)
	if r := g.rule.Load(); r != nil {
		for p, share := range r.shares {
			if share > 0 {
				s.Refusing[names[p]], s.PauseMs = share, milliseconds(r.pause)
			}
		}
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
