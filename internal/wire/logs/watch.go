package logs

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/exchange"
)

// NoRoute stands for the route of a request that no route matched. No route has this name.
const NoRoute = "none"

// Filter says which requests a watcher receives; all conditions must hold. The zero Filter takes
// every request.
type Filter struct {
	ID      string
	Route   string
	SSP     string        // of the request, or of one of its legs
	Outcome string        // of the same request or leg
	Slow    time.Duration // took longer
}

// takes reports whether r passes the filter.
func (f *Filter) takes(r *Record) bool {
	if f.ID != "" && r.ID != f.ID || f.Route != "" && r.Route != f.Route || f.Slow > 0 && r.Total <= f.Slow {
		return false
	}
	return f.hits(r.SSP, r.Outcome) || slices.ContainsFunc(r.Legs, func(l Leg) bool { return f.hits(l.SSP, l.Outcome) })
}

func (f *Filter) hits(ssp string, o exchange.Outcome) bool {
	return (f.SSP == "" || ssp == f.SSP) && (f.Outcome == "" || o.String() == f.Outcome)
}

// watchPerSecond is how many requests a watcher receives in a second.
const watchPerSecond = 50

// Watcher receives requests as they end. It never delays a request: requests that it does not take
// in time, or beyond watchPerSecond, are skipped and counted.
type Watcher struct {
	filter  Filter
	log     *RequestLog
	records chan *Record
	second  window
	skipped atomic.Uint64
}

// Watch returns a new watcher. Its caller calls Stop once.
func (l *RequestLog) Watch(f Filter) *Watcher {
	w := &Watcher{filter: f, log: l, records: make(chan *Record, watchPerSecond)}
	l.watchers.add(w)
	return w
}

// Records returns the channel of the requests.
func (w *Watcher) Records() <-chan *Record { return w.records }

// Skipped returns how many requests were skipped.
func (w *Watcher) Skipped() uint64 { return w.skipped.Load() }

// Stop ends the watcher.
func (w *Watcher) Stop() { w.log.watchers.remove(w) }

func (w *Watcher) tell(r *Record) {
	if !w.filter.takes(r) {
		return
	}
	if w.second.allow(r.At, watchPerSecond) {
		select {
		case w.records <- r:
			return
		default:
		}
	}
	w.skipped.Add(1)
}

// watchers are the current watchers.
type watchers struct {
	n   atomic.Int32
	mu  sync.Mutex // guards all
	all []*Watcher
}

func (ws *watchers) any() bool { return ws.n.Load() > 0 }

func (ws *watchers) add(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all = append(ws.all, w)
	ws.n.Add(1)
}

func (ws *watchers) remove(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.Index(ws.all, w); i >= 0 {
		ws.all = slices.Delete(ws.all, i, i+1)
		ws.n.Add(-1)
	}
}

func (ws *watchers) tell(r *Record) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		w.tell(r)
	}
}
