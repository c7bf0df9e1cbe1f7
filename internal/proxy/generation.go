package proxy

import (
	"time"

	"adbuffer/internal/route"
	"adbuffer/internal/upstream"
)

// generation is what one Reload brought: options, routes, and the counters of
// those routes. It does not change. A request takes the one that is current
// when its head has been read, and uses it to its end, so that it never sees
// the options of one configuration with the routes of another.
type generation struct {
	opts           Options
	requestIDField []byte // of opts
	table          *route.Table
	// routes are the counters by Route.Index; behind them those of requests that
	// match no route.
	routes []*routeStats
}

// newGeneration keeps the counters of the routes that old, nil at first, has
// under the same name. Those of other routes are gone with it: requests on them
// that are still in flight count where nobody looks any more.
func newGeneration(opts Options, table *route.Table, old *generation) *generation {
	kept := make(map[string]*routeStats)
	if old != nil {
		for _, rs := range old.routes {
			kept[rs.name] = rs
		}
	}
	g := &generation{opts: opts, requestIDField: []byte(opts.RequestIDField), table: table, routes: make([]*routeStats, len(table.Routes)+1)}
	for i := range g.routes {
		name := noRoute
		if i < len(table.Routes) {
			name = table.Routes[i].Name
		}
		if g.routes[i] = kept[name]; g.routes[i] == nil {
			g.routes[i] = newRouteStats(name)
		}
	}
	return g
}

// stats returns the counters of route rt of this generation, nil for none.
func (g *generation) stats(rt *route.Route) *routeStats {
	if rt == nil {
		return g.routes[len(g.routes)-1]
	}
	return g.routes[rt.Index]
}

// ended counts a request of route rt, nil for none.
func (g *generation) ended(rt *route.Route, o upstream.Outcome, took time.Duration) {
	rs := g.stats(rt)
	rs.outcomes[o].Add(1)
	rs.duration.ObserveDuration(took)
}

func (g *generation) noAd(rt *route.Route, by origin) { g.stats(rt).noAds[by].Add(1) }

// current returns the generation for what begins now.
func (p *Proxy) current() *generation { return p.generation.Load() }

// Reload makes opts and table those of every request whose head is read from now
// on. Requests under way end with what they began with, and nobody waits for
// them. Counters of routes go on under the same name; those of routes that are
// no more vanish.
//
// What of opts applies when: limits and all that a request asks, to the next
// request; max_connections and TLS, to the next connection; read_timeout and
// write_timeout, where a connection next waits; idle_timeout, where it next
// becomes idle, over HTTP/2 to the next connection. A limit that was lowered
// ends nothing that is above it. MaxHeaderBytes stays as it was.
func (p *Proxy) Reload(opts Options, table *route.Table) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	old := p.generation.Load()
	opts.MaxHeaderBytes = old.opts.MaxHeaderBytes
	p.generation.Store(newGeneration(opts, table, old))
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.uploads.setLimit(opts.MaxUploads)
	p.budget.SetLimit(opts.MaxBufferedBytes)
}
