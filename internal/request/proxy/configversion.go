package proxy

import (
	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/sample"
)

// configVersion holds what one Reload set: options, routes, and the counters of these routes. It never
// changes. A request takes the current version when its head has been read, and uses it until it ends, so
// a request never sees the options of one configuration with the routes of another.
type configVersion struct {
	opts  Options
	table *route.Table
	// routes holds the counters of the routes by Route.Index, and in its last element those of the
	// requests that match no route.
	routes []*routeStats
	sample *sample.Sample // nil = no sample
}

// newConfigVersion returns a version in which routes keep the counters that old has under their names. old
// is nil for the first version. The counters of removed routes still count their requests in flight, but
// are no longer exported. If the settings of the sample change, a new, empty sample replaces it.
func (p *Proxy) newConfigVersion(opts Options, table *route.Table, old *configVersion) *configVersion {
	kept := make(map[string]*routeStats)
	if old != nil {
		for _, rs := range old.routes {
			kept[rs.name] = rs
		}
	}
	v := &configVersion{opts: opts, table: table, routes: make([]*routeStats, len(table.Routes)+1)}
	if old != nil && old.opts.Sample == opts.Sample {
		v.sample = old.sample
	} else {
		v.sample = sample.New(opts.Sample, p.budget)
	}
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

// stats returns the counters of route rt, or of the requests without a route if rt is nil.
func (v *configVersion) stats(rt *route.Route) *routeStats {
	if rt == nil {
		return v.routes[len(v.routes)-1]
	}
	return v.routes[rt.Index]
}

func (r *request) noAd(by origin) { r.stats(r.route).noAds[by].Add(1) }

// current returns the config version for a request or connection that begins now.
func (p *Proxy) current() *configVersion { return p.config.Load() }

// Reload makes opts and table current: every request whose head is read after the call uses them. Requests
// in flight keep the options that they began with, and Reload does not wait for them. A route that keeps
// its name keeps its counters; the counters of removed routes disappear.
//
// Most options apply from the next request on, and max_connections from the next connection on.
// read_timeout and write_timeout apply the next time a connection waits, idle_timeout the next time a
// connection becomes idle; over HTTP/2, idle_timeout applies to new connections only. Lowering a limit ends
// no request or connection that exceeds it. MaxHeaderBytes and TLS do not change.
func (p *Proxy) Reload(opts Options, table *route.Table) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	old := p.config.Load()
	opts.MaxHeaderBytes = old.opts.MaxHeaderBytes
	next := p.newConfigVersion(opts, table, old)
	p.config.Store(next)
	if next.sample != old.sample {
		old.sample.Close()
	}
	p.Server.Reload(opts.Options)
	p.inFlight.SetLimit(opts.MaxInFlight)
	p.uploads.setLimit(opts.MaxUploads)
	p.budget.SetLimit(opts.MaxBufferedBytes)
	p.budget.SetFrom(opts.MaxBufferedBytesFrom)
}
