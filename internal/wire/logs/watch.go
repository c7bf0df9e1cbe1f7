package logs

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/exchange"
)

// NoRoute is the Record.Route of a request that no route matched. No route may have this name.
const NoRoute = "none"

// Filter selects the requests that a watcher receives. A request must match all fields that are not zero.
type Filter struct {
	ID      string
	Route   string
	SSP     string        // the SSP of the request or of one of its legs
	Outcome string        // the outcome of the request or of one of its legs; with SSP, of the same request or leg
	Slow    time.Duration // the request took longer than this
}

// matches reports whether r passes the filter.
func (f *Filter) matches(r *Record) bool {
	if f.ID != "" && r.ID != f.ID || f.Route != "" && r.Route != f.Route || f.Slow > 0 && r.Total <= f.Slow {
		return false
	}
	return f.matchesLeg(r.SSP, r.Outcome) || slices.ContainsFunc(r.Legs, func(l Leg) bool { return f.matchesLeg(l.SSP, l.Outcome) })
}

func (f *Filter) matchesLeg(ssp string, o exchange.Outcome) bool {
	return (f.SSP == "" || ssp == f.SSP) && (f.Outcome == "" || o.String() == f.Outcome)
}

// watchPerSecond is how many requests a watcher receives in a second.
const watchPerSecond = 50

// Watcher receives requests as they end. It never delays a request: if its channel is full, or watchPerSecond is
// exceeded, requests are skipped and counted.
type Watcher struct {
	filter  Filter
	log     *RequestLog
	records chan *Record
	second  secondCounter
	skipped atomic.Uint64
}

// Watch returns a new watcher. The caller must call Stop when it no longer needs the watcher.
func (l *RequestLog) Watch(f Filter) *Watcher {
	w := &Watcher{filter: f, log: l, records: make(chan *Record, watchPerSecond)}
	l.watchers.add(w)
	return w
}

// Records returns the channel on which the requests arrive. Stop does not close it.
func (w *Watcher) Records() <-chan *Record { return w.records }

// Skipped returns how many requests were skipped.
func (w *Watcher) Skipped() uint64 { return w.skipped.Load() }

// Stop ends the watcher.
func (w *Watcher) Stop() { w.log.watchers.remove(w) }

func (w *Watcher) send(r *Record) {
	if !w.filter.matches(r) {
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
	count atomic.Int32
	mu    sync.Mutex // guards all
	all   []*Watcher
}

func (ws *watchers) any() bool { return ws.count.Load() > 0 }

func (ws *watchers) add(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all = append(ws.all, w)
	ws.count.Add(1)
}

func (ws *watchers) remove(w *Watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.Index(ws.all, w); i >= 0 {
		ws.all = slices.Delete(ws.all, i, i+1)
		ws.count.Add(-1)
	}
}

func (ws *watchers) send(r *Record) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		w.send(r)
	}
}
