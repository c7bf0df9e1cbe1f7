package proxy

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/metrics"
	"adbuffer/internal/upstream"
)

const ms = time.Millisecond

// origin is the part that decided that there is no ad: the label `origin`.
type origin uint8

const (
	byProxy origin = iota // adbuffer failed, or replaced an error
	bySSP                 // the SSP had no bid
	origins
)

var originNames = [origins]string{"proxy", "ssp"}

// routeStats are the counters of a route: plain atomics, read at scrape time.
type routeStats struct {
	name     string
	outcomes [upstream.Outcomes]atomic.Uint64
	duration *metrics.Histogram
	noAds    [origins]atomic.Uint64
	masked   atomic.Uint64 // errors of SSPs that on_error replaced
}

// noRoute is the value of the label `route` if no route matched.
const noRoute = "none"

func newRouteStats(name string) *routeStats {
	return &routeStats{
		name: name,
		// The buckets end at the longest deadline by default, as for SSPs.
		duration: metrics.Durations(ms, 2*ms, 5*ms, 10*ms, 20*ms, 35*ms, 50*ms, 75*ms, 100*ms, 150*ms, 200*ms, 250*ms, 300*ms, 400*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms),
	}
}
