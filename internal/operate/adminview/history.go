package adminview

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// The page's charts show five minutes: historyPoints points, one every historyStep.
const (
	historyStep   = 2 * time.Second
	historyPoints = 150
)

// history holds the points of one SSP's charts, oldest first.
type history struct {
	Rate       []float64 `json:"rate"`       // requests per second that asked for a place
	Saturation []float64 `json:"saturation"` // at the moment of the look, from 0 to 1
	HoldMillis []float64 `json:"hold_ms"`    // mean time for which a place was held; 0 if no place was released
	Waiting    []int     `json:"waiting"`    // requests that waited at the moment of the look
	// For a pool that sizes itself, AutoLimit is the number of places that it allows, and AutoNeed the
	// number that its load needs. They have points only since the pool began to size itself, and are
	// absent for other pools.
	AutoLimit []int `json:"auto_limit,omitempty"`
	AutoNeed  []int `json:"auto_need,omitempty"`

	pool   *pool.Pool     // the pool that the points describe
	before *pool.Snapshot // snapshot at the last look; nil before the first look at this pool
	at     time.Time      // time of the last look

	minute     minute
	trend      trend
	outcomes   []map[string]uint64 // requests since start by outcome, at each of the last recentLooks looks, oldest first
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
	advised map[string]time.Duration // the idle_timeout last advised in the log, by SSP
}

func newHistories(log *zap.Logger) *histories {
	return &histories{log: log, bySSP: make(map[string]*history), byRoute: make(map[string]*minute), advised: make(map[string]time.Duration)}
}

// look adds a point to the charts of each SSP and route, and logs conditions that begin or end. It is called every
// historyStep.
func (h *histories) look(now time.Time, parts []*reload.Part, routes []proxy.RouteCounts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookAtRoutesLocked(routes)
	present := make(map[string]bool, len(parts))
	for _, p := range parts {
		s := p.SSP
		snap, opts := s.Pool().Snapshot(), s.Pool().Options()
		present[s.Name()] = true
		charts := h.historyLocked(s.Name())
		if !charts.minute.describes(s.Latency()) { // two reloads removed the SSP and added it again, with new counters
			*charts = *newHistory()
		}
		if charts.pool != s.Pool() { // a new pool counts from 0 and has no learned state
			charts.pool, charts.before = s.Pool(), nil
			delete(h.advised, s.Name())
		}
		charts.addPoint(now, &snap)
		h.adviseLocked(s.Name(), &snap, &opts)
		state := s.Snapshot()
		charts.minute.look(s.Latency(), counts{outcomes: state.Outcomes})
		charts.trend.look(snap.Saturation, state.Outcomes)
		last := charts.recent(state.Outcomes)
		s.SetRejecting(last.rejects())
		charts.conditions.look(h.log.With(zap.String("ssp", s.Name())), now, conditionsOf(&snap, &state, p.FailedLookups(), last))
		charts.outcomes = push(charts.outcomes, recentLooks, state.Outcomes)
	}
	for name := range h.bySSP {
		if !present[name] { // a reload removed the SSP
			delete(h.bySSP, name)
			delete(h.advised, name)
		}
	}
}

// newHistory returns charts without points. Its lists are not nil, which JSON would show as null.
func newHistory() *history {
	return &history{Rate: []float64{}, Saturation: []float64{}, HoldMillis: []float64{}, Waiting: []int{}}
}

func (h *histories) historyLocked(name string) *history {
	if h.bySSP[name] == nil {
		h.bySSP[name] = newHistory()
	}
	return h.bySSP[name]
}

func (h *history) addPoint(now time.Time, s *pool.Snapshot) {
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
		h.byRoute[r.Name].look(r.Latency, countsOf(r))
	}
	maps.DeleteFunc(h.byRoute, func(name string, _ *minute) bool { return !present[name] })
}

// ofSSP returns the results of the SSP's requests in the last minute (or since the SSP was added, if that is more recent),
// the SSP's trend, and what its most recent requests show. outcomes counts all its requests since start.
func (h *histories) ofSSP(s *ssp.SSP, outcomes map[string]uint64) (m lastMinute, t trend, last recent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.historyLocked(s.Name())
	return one.minute.last(s.Latency(), counts{outcomes: outcomes}), one.trend, one.recent(outcomes)
}

// outcomesOf returns the SSP's requests in the last minute by outcome. outcomes counts all requests since start.
func (h *histories) outcomesOf(s *ssp.SSP, outcomes map[string]uint64) map[string]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, _ := h.historyLocked(s.Name()).minute.before(s.Latency())
	return since(before.outcomes, outcomes)
}

func (h *histories) lastMinuteOfRoute(r *proxy.RouteCounts) lastMinute {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.byRoute[r.Name]
	if one == nil {
		one = new(minute)
	}
	return one.last(r.Latency, countsOf(r))
}

func countsOf(r *proxy.RouteCounts) counts {
	return counts{r.Outcomes, r.Masked, r.Merged, r.Preflights}
}

// recent is what the last requests to an SSP show.
type recent struct {
	outcomes map[string]uint64 // the requests of the last recentLooks looks, by outcome
	// responses counts the SSP's responses in a time that is just long enough for rejectResponses of them: from recentLooks
	// looks to a minute. rejected counts those with a status of 4xx. Both are 0 if a minute was not long enough.
	responses, rejected uint64
}

// rejectResponses is how many responses are enough to see that an SSP rejects most requests.
const rejectResponses = 20

// rejects reports whether the SSP rejects most requests. With enough responses, the last few seconds decide, so that the
// result changes soon after the SSP does.
func (r *recent) rejects() bool { return 2*r.rejected > r.responses }

// recent returns what the last requests show. outcomes counts all requests since start.
func (h *history) recent(outcomes map[string]uint64) (r recent) {
	earlier := []map[string]uint64{nil} // the counts recentLooks looks ago; nil before the first look
	if len(h.outcomes) > 0 {
		earlier[0] = h.outcomes[0]
	}
	for _, m := range slices.Backward(h.minute.marks) { // the marks of the last minute, the latest first
		earlier = append(earlier, m.outcomes)
	}
	r.outcomes = since(earlier[0], outcomes)
	for _, then := range earlier { // marks later than earlier[0] have fewer responses
		var responses uint64
		for o := range exchange.Outcomes {
			if o.HasResponse() {
				responses += outcomes[o.String()] - min(outcomes[o.String()], then[o.String()])
			}
		}
		if responses >= rejectResponses {
			name := exchange.ClientError.String()
			r.responses, r.rejected = responses, outcomes[name]-min(outcomes[name], then[name])
			break
		}
	}
	return r
}

// push appends p to points, and keeps the last limit points. It overwrites no point, so readers need no
// copy of points.
func push[T any](points []T, limit int, p T) []T {
	return append(points[max(0, len(points)-limit+1):], p)
}

// round rounds to three decimals; charts do not show more.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// adviseLocked logs the idle_timeout that the operator should set: once, and again when the advised time has changed by
// more than a tenth.
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
