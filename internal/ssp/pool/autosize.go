package pool

import (
	"sync"
	"time"

	"adbuffer/internal/ssp/sizer"
)

// AutoSize lets a pool decide how many of its max_conns it uses. Package config says what the tags mean.
type AutoSize struct {
	Enabled  bool `yaml:"enabled"`
	DryRun   bool `yaml:"dry_run"`                                    // decide, count and show, and change nothing
	MinConns int  `yaml:"min_conns" default:"16" min:"1" max:"65536"` // the least size, in places; there are at least MinIdle connections too, and one for each endpoint
}

// autosizer lets the sizer choose the size of a pool, and keeps what the sizer decided.
type autosizer struct {
	mu        sync.Mutex   // taken before Pool.mu
	sizer     *sizer.Sizer // nil: the pool has its configured size
	limits    sizer.Limits
	decisions [10]sizer.Decision // the last ones; decided counts them
	decided   int
	counts    [sizer.Kinds]uint64
}

// Tick runs once in each sizer.Interval, and at least once a second while Auto is not enabled. heldBack
// says that something other than the pool's size holds requests back. It returns what the pool decided
// about its size, if it did.
func (p *Pool) Tick(now time.Time, heldBack bool) (d sizer.Decision, ok bool) {
	p.mu.Lock()
	at := p.sizerInput(heldBack)
	p.end(now)
	x, auto := at.sample, at.auto
	x.Releases, x.Held = p.stats.hold.Count(), time.Duration(p.stats.hold.Sum()*float64(time.Second))

	a := &p.auto
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.limits
	a.limits = at.limits
	switch {
	case !auto.Enabled:
		if a.sizer != nil {
			a.sizer = nil
			p.resize(0, 0, now)
		}
		return d, false
	case a.sizer == nil:
		begin := at.limits.Min
		if auto.DryRun {
			begin = at.limits.Max
		}
		a.sizer = sizer.New(at.limits, begin, nil)
	case at.limits != was:
		a.sizer.SetLimits(at.limits)
	}
	d, ok = a.sizer.Tick(now, x)
	if ok {
		a.decisions[a.decided%len(a.decisions)] = d
		a.decided++
		a.counts[d.Kind]++
	}
	if auto.DryRun {
		p.resize(0, 0, now) // a reload may have begun the dry run
		return d, ok
	}
	conns := max((a.sizer.Limit()+at.perConn-1)/at.perConn, at.least)
	closeAbove := 0
	if ok && d.Kind == sizer.Reverted {
		closeAbove = conns
	}
	p.resize(conns, closeAbove, now)
	return d, ok
}

// inherit takes over what the pool before has learned and decided.
func (a *autosizer) inherit(before *autosizer) {
	before.mu.Lock()
	learned := before.sizer
	limits, decisions, decided, counts := before.limits, before.decisions, before.decided, before.counts
	if learned != nil {
		learned = learned.Clone()
	}
	before.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sizer, a.limits, a.decisions, a.decided, a.counts = learned, limits, decisions, decided, counts
}

// resize tells the machine how many connections may be open; see machine.resize.
func (p *Pool) resize(conns, closeAbove int, now time.Time) {
	p.mu.Lock()
	defer p.end(now)
	p.machine.resize(conns, closeAbove)
}

// AutoSnapshot is what a pool has decided about its size.
type AutoSnapshot struct {
	DryRun bool `json:"dry_run"`
	Limit  int  `json:"limit"` // places
	Need   int  `json:"need"`  // places that the load needs
	// IdleTimeoutSeconds is after how long idle connections close, in a dry run what it would be. 0 =
	// never.
	IdleTimeoutSeconds float64           `json:"idle_timeout_seconds"`
	HoldSeconds        float64           `json:"hold_seconds"`
	Counts             map[string]uint64 `json:"counts"`    // decisions since start, by kind
	Decisions          []sizer.Decision  `json:"decisions"` // the last ten, the newest first
}

// snapshot returns nil if the pool has its configured size.
func (a *autosizer) snapshot(now time.Time) *AutoSnapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sizer == nil {
		return nil
	}
	s := &AutoSnapshot{DryRun: a.limits.DryRun, Limit: a.sizer.Limit(), Need: a.sizer.Need(), HoldSeconds: a.sizer.HeldFor(now).Seconds(), Counts: make(map[string]uint64)}
	for k := sizer.Grown; k < sizer.Kinds; k++ {
		s.Counts[k.String()] = a.counts[k]
	}
	for i := range min(a.decided, len(a.decisions)) {
		s.Decisions = append(s.Decisions, a.decisions[(a.decided-1-i)%len(a.decisions)])
	}
	return s
}
