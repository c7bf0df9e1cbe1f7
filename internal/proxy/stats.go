package proxy

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/histogram"
	"adbuffer/internal/route"
	"adbuffer/internal/upstream"
)

const ms = time.Millisecond

// origin is who decided that there is no ad: the label `origin`.
type origin uint8

const (
	byProxy origin = iota // we failed, or replaced an error
	bySSP                 // the SSP said no
	origins
)

var originNames = [origins]string{"proxy", "ssp"}

// stats are the counters of the traffic side: plain atomics, read at scrape
// time. The last of routes is for requests that match none.
type stats struct {
	routes []routeStats
	panics atomic.Uint64
}

type routeStats struct {
	name     string
	outcomes [upstream.Outcomes]atomic.Uint64
	duration *histogram.Histogram
	noAds    [origins]atomic.Uint64
}

// noRoute is the value of the label `route` where nothing matched.
const noRoute = "none"

func newStats(t *route.Table) *stats {
	s := &stats{routes: make([]routeStats, len(t.Routes)+1)}
	for i := range s.routes {
		s.routes[i].name = noRoute
		if i < len(t.Routes) {
			s.routes[i].name = t.Routes[i].Name
		}
		// As for SSPs, up to the longest deadline by default.
		s.routes[i].duration = histogram.Durations(ms, 2*ms, 5*ms, 10*ms, 20*ms, 35*ms, 50*ms, 75*ms, 100*ms, 150*ms, 200*ms, 250*ms, 300*ms, 400*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms)
	}
	return s
}

func (s *stats) of(rt *route.Route) *routeStats {
	if rt == nil {
		return &s.routes[len(s.routes)-1]
	}
	return &s.routes[rt.Index]
}

// ended counts a request of route rt, nil for none.
func (s *stats) ended(rt *route.Route, o upstream.Outcome, took time.Duration) {
	rs := s.of(rt)
	rs.outcomes[o].Add(1)
	rs.duration.ObserveDuration(took)
}

func (s *stats) noAd(rt *route.Route, by origin) { s.of(rt).noAds[by].Add(1) }
