package proxy

import (
	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/request/route"
)

// configVersion is the result of one Reload: options, routes, and the counters of these routes. It
// never changes. A request takes the current one when its head has been read, and uses it to its
// end. So it never sees the options of one configuration with the routes of another.
type configVersion struct {
	opts  Options
	table *route.Table
	// routes are the counters by Route.Index. The last one counts requests that match no
	// route.
	routes []*routeStats
}

// newConfigVersion keeps the counters of routes that old, nil at first, has under the same name.
// The counters of other routes end with old. Their requests that are still in flight are counted,
// but no longer exported.
func newConfigVersion(opts Options, table *route.Table, old *configVersion) *configVersion {
	kept := make(map[string]*routeStats)
	if old != nil {
		for _, rs := range old.routes {
			kept[rs.name] = rs
		}
	}
	v := &configVersion{opts: opts, table: table, routes: make([]*routeStats, len(table.Routes)+1)}
	for i := range v.routes {
		name := noRoute
		if i < len(table.Routes) {
			name = table.Routes[i].Name
		}
		v.routes[i] = kept[name]
		if v.routes[i] == nil {
			v.routes[i] = &routeStats{name: name, duration: metrics.RequestDurations()}
		}
	}
	return v
}

// stats returns the counters of route rt. nil means no route.
func (v *configVersion) stats(rt *route.Route) *routeStats {
	if rt == nil {
		return v.routes[len(v.routes)-1]
	}
	return v.routes[rt.Index]
}

func (r *request) noAd(by origin) { r.stats(r.route).noAds[by].Add(1) }

// current returns the config version for a request or connection that begins now.
func (p *Proxy) current() *configVersion { return p.config.Load() }

// Reload makes opts and table current: every request whose head is read from now on uses them.
// Requests in flight end with the options that they began with, and Reload does not wait for them.
// A route that keeps its name keeps its counters; the counters of removed routes disappear.
//
// Most options apply to the next request. max_connections applies to the next connection.
// read_timeout and write_timeout apply when a connection next waits. idle_timeout applies when it
// next becomes idle; over HTTP/2 it applies to the next connection. A lower limit ends no request
// or connection that is above it. MaxHeaderBytes and TLS do not change.
func (p *Proxy) Reload(opts Options, table *route.Table) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	old := p.config.Load()
	opts.MaxHeaderBytes = old.opts.MaxHeaderBytes
	p.config.Store(newConfigVersion(opts, table, old))
	p.Server.Reload(opts.Options)
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.uploads.setLimit(opts.MaxUploads)
	p.budget.SetLimit(opts.MaxBufferedBytes)
	p.budget.SetFrom(opts.MaxBufferedBytesFrom)
}
