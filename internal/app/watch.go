package app

import (
	"context"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/pool"
	"adbuffer/internal/sizing"
	"adbuffer/internal/ssp"
)

// The page's charts show historyPoints points, historyStep apart: five minutes.
const (
	historyStep   = 2 * time.Second
	historyPoints = 150
)

// history is what the charts of one SSP show, oldest first.
type history struct {
	Rate       []float64 `json:"rate"`       // requests per second that asked for a place
	Saturation []float64 `json:"saturation"` // 0 to 1, at the moment
	HoldMillis []float64 `json:"hold_ms"`    // mean of the places given back; 0 where none was
	Waiting    []int     `json:"waiting"`    // at the moment

	pool   *pool.Pool     // what is looked at
	before *pool.Snapshot // nil before the first look at it
	at     time.Time
}

// watch keeps the history of all SSPs, and tells the log what was learned.
type watch struct {
	log *zap.Logger

	mu      sync.Mutex // guards the fields below
	bySSP   map[string]*history
	advised map[string]time.Duration // idle_timeout as last logged
}

func newWatch(log *zap.Logger) *watch {
	return &watch{log: log, bySSP: make(map[string]*history), advised: make(map[string]time.Duration)}
}

// run looks at the SSPs every historyStep until ctx ends.
func (w *watch) run(ctx context.Context, ssps func() []*ssp.SSP) {
	tick := time.NewTicker(historyStep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.look(now, ssps())
		}
	}
}

func (w *watch) look(now time.Time, ssps []*ssp.SSP) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := make(map[string]bool, len(ssps))
	for _, s := range ssps {
		snap, opts := s.Pool().Snapshot(), s.Pool().Options()
		there[s.Name()] = true
		h := w.historyLocked(s.Name())
		if h.pool != s.Pool() { // another begins to count at 0, and has learned nothing
			h.pool, h.before = s.Pool(), nil
			delete(w.advised, s.Name())
		}
		h.note(now, &snap)
		w.adviseLocked(s.Name(), &snap, &opts)
	}
	for name := range w.bySSP { // taken out of the configuration
		if !there[name] {
			delete(w.bySSP, name)
			delete(w.advised, name)
		}
	}
}

func (w *watch) historyLocked(name string) *history {
	h := w.bySSP[name]
	if h == nil {
		h = new(history)
		w.bySSP[name] = h
	}
	return h
}

func (h *history) note(now time.Time, s *pool.Snapshot) {
	if b := h.before; b != nil {
		hold := 0.0
		if n := s.Holds - b.Holds; n > 0 {
			hold = 1000 * (s.HoldSeconds - b.HoldSeconds) / float64(n)
		}
		h.Rate = push(h.Rate, round(float64(s.Arrivals-b.Arrivals)/now.Sub(h.at).Seconds()))
		h.Saturation = push(h.Saturation, round(s.Saturation))
		h.HoldMillis = push(h.HoldMillis, round(hold))
		h.Waiting = push(h.Waiting, s.Pending)
	}
	h.before, h.at = s, now
}

func push[T any](points []T, p T) []T {
	if len(points) == historyPoints {
		copy(points, points[1:])
		points = points[:historyPoints-1]
	}
	return append(points, p)
}

// round keeps what a chart can show.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// adviseLocked logs an idle_timeout to set: once, and again when it is another
// by more than a tenth.
func (w *watch) adviseLocked(name string, s *pool.Snapshot, o *pool.Options) {
	advised := sizing.IdleTimeout(s, o)
	before := w.advised[name]
	if advised == 0 || (advised-before).Abs() <= before/10 {
		return
	}
	w.advised[name] = advised
	w.log.Warn("the SSP closes idle connections sooner than adbuffer does; set pool.idle_timeout",
		zap.String("ssp", name), zap.Duration("set", advised), zap.Duration("now", o.IdleTimeout),
		zap.Float64("learned_idle_seconds", s.LearnedIdleSeconds))
}

// view is what /history shows.
func (w *watch) view() any {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string]history, len(w.bySSP))
	for name, h := range w.bySSP {
		all[name] = history{Rate: clone(h.Rate), Saturation: clone(h.Saturation), HoldMillis: clone(h.HoldMillis), Waiting: clone(h.Waiting)}
	}
	return map[string]any{"step_seconds": historyStep.Seconds(), "ssps": all}
}

// clone is never nil, which JSON would show as null.
func clone[T any](points []T) []T { return append([]T{}, points...) }
