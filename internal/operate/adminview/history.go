package adminview

import (
	"maps"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
)

// The page's charts show five minutes: historyPoints points, one every historyStep.
const (
	historyStep   = 2 * time.Second
	historyPoints = 150
)

// history is the charts of one SSP, oldest point first.
type history struct {
	Rate       []float64 `json:"rate"`       // requests per second that asked for a place
	Saturation []float64 `json:"saturation"` // 0 to 1, now
	HoldMillis []float64 `json:"hold_ms"`    // mean time that a place was held; 0 if no place was released
	Waiting    []int     `json:"waiting"`    // now
	// AutoLimit and AutoNeed are the places that a pool which sizes itself allows, and those that its load
	// needs. They are absent while it has its configured size, and shorter if that was so before.
	AutoLimit []int `json:"auto_limit,omitempty"`
	AutoNeed  []int `json:"auto_need,omitempty"`

	pool   *pool.Pool     // the pool that the points describe
	before *pool.Snapshot // of the last look; nil before the first look at this pool
	at     time.Time      // of the last look

	minute     minute
	trend      trend
	outcomes   []map[string]uint64 // since start, at the last recentLooks looks, oldest first
	conditions conditionLog
}

// recentLooks is how many looks count as recent.
const recentLooks = 5

// histories keeps the history of all SSPs, and logs advice on idle_timeout.
type histories struct {
	log *zap.Logger

	mu      sync.Mutex // guards the fields below
	bySSP   map[string]*history
	byRoute map[string]*minute
	advised map[string]time.Duration // idle_timeout that was last logged
}

func newHistories(log *zap.Logger) *histories {
	return &histories{log: log, bySSP: make(map[string]*history), byRoute: make(map[string]*minute), advised: make(map[string]time.Duration)}
}

// look is called every historyStep.
func (h *histories) look(now time.Time, parts []*reload.Part, routes []proxy.RouteCounts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookAtRoutesLocked(routes)
	present := make(map[string]bool, len(parts))
	for _, p := range parts {
		s := p.SSP
		snap, opts := s.Pool().Snapshot(), s.Pool().Options()
		present[s.Name()] = true
		one := h.historyLocked(s.Name())
		if !one.minute.describes(s.Latency()) { // two reloads removed the SSP and added it again, with new counters
			*one = *newHistory()
		}
		if one.pool != s.Pool() { // a new pool counts from 0 and has no learned state
			one.pool, one.before = s.Pool(), nil
			delete(h.advised, s.Name())
		}
		one.note(now, &snap)
		h.adviseLocked(s.Name(), &snap, &opts)
		state := s.Snapshot()
		one.minute.look(s.Latency(), state.Outcomes, 0)
		one.trend.look(snap.Saturation, state.Outcomes)
		one.conditions.look(h.log.With(zap.String("ssp", s.Name())), now, conditionsOf(&snap, &state, p.FailedLookups(), one.recent(state.Outcomes)))
		one.outcomes = push(one.outcomes, recentLooks, state.Outcomes)
	}
	for name := range h.bySSP {
		if !present[name] { // a reload removed the SSP
			delete(h.bySSP, name)
			delete(h.advised, name)
		}
	}
}

// newHistory returns charts without points. JSON would show nil as null.
func newHistory() *history {
	return &history{Rate: []float64{}, Saturation: []float64{}, HoldMillis: []float64{}, Waiting: []int{}}
}

func (h *histories) historyLocked(name string) *history {
	if h.bySSP[name] == nil {
		h.bySSP[name] = newHistory()
	}
	return h.bySSP[name]
}

func (h *history) note(now time.Time, s *pool.Snapshot) {
	if b := h.before; b != nil {
		hold := 0.0
		if n := s.Holds - b.Holds; n > 0 {
			hold = 1000 * (s.HoldSeconds - b.HoldSeconds) / float64(n)
		}
		h.Rate = push(h.Rate, historyPoints, round(float64(s.Arrivals-b.Arrivals)/now.Sub(h.at).Seconds()))
		h.Saturation = push(h.Saturation, historyPoints, round(s.Saturation))
		h.HoldMillis = push(h.HoldMillis, historyPoints, round(hold))
		h.Waiting = push(h.Waiting, historyPoints, s.Pending)
		if a := s.Auto; a != nil {
			h.AutoLimit, h.AutoNeed = push(h.AutoLimit, historyPoints, a.Limit), push(h.AutoNeed, historyPoints, a.Need)
		} else {
			h.AutoLimit, h.AutoNeed = nil, nil
		}
	}
	h.before, h.at = s, now
}

func (h *histories) lookAtRoutesLocked(routes []proxy.RouteCounts) {
	present := make(map[string]bool, len(routes))
	for i := range routes {
		r := &routes[i]
		present[r.Name] = true
		if one := h.byRoute[r.Name]; one == nil || !one.describes(r.Latency) {
			h.byRoute[r.Name] = new(minute)
		}
		h.byRoute[r.Name].look(r.Latency, r.Outcomes, r.Masked)
	}
	maps.DeleteFunc(h.byRoute, func(name string, _ *minute) bool { return !present[name] })
}

// ofSSP returns what the SSP's requests of the last minute came to, or since its start if that is more
// recent, its trend, and how many requests ended with each outcome since the oldest of the last looks.
// outcomes are since start.
func (h *histories) ofSSP(s *ssp.SSP, outcomes map[string]uint64) (m lastMinute, t trend, recent map[string]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.historyLocked(s.Name())
	return one.minute.last(s.Latency(), outcomes, 0), one.trend, one.recent(outcomes)
}

func (h *histories) lastMinuteOfRoute(r *proxy.RouteCounts) lastMinute {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.byRoute[r.Name]
	if one == nil {
		one = new(minute)
	}
	return one.last(r.Latency, r.Outcomes, r.Masked)
}

// recent returns how many requests ended with each outcome since the oldest of the last looks.
func (h *history) recent(outcomes map[string]uint64) map[string]uint64 {
	if len(h.outcomes) == 0 {
		return outcomes
	}
	return since(h.outcomes[0], outcomes)
}

// push appends p to the last points, of which most are kept. It changes no point, so a reader needs no
// copy of them.
func push[T any](points []T, most int, p T) []T {
	return append(points[max(0, len(points)-most+1):], p)
}

// round keeps three decimals: a chart shows no more.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// adviseLocked logs an idle_timeout to set: once, and again when the advice changed
// by more than a tenth.
func (h *histories) adviseLocked(name string, s *pool.Snapshot, o *pool.Options) {
	advised := advice.IdleTimeout(s, o)
	before := h.advised[name]
	if advised == 0 || (advised-before).Abs() <= before/10 {
		return
	}
	h.advised[name] = advised
	h.log.Warn("the SSP closes idle connections sooner than adbuffer does; set pool.idle_timeout",
		zap.String("ssp", name), zap.Duration("set", advised), zap.Duration("now", o.IdleTimeout),
		zap.Float64("learned_idle_seconds", s.LearnedIdleSeconds))
}

func (h *histories) view(only string) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]history, len(h.bySSP))
	for name, one := range h.bySSP {
		if only == "" || only == name {
			all[name] = *one
		}
	}
	return map[string]any{"step_seconds": historyStep.Seconds(), "ssps": all}
}
