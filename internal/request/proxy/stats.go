package proxy

import (
	"sync/atomic"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
)

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
	outcomes [exchange.Outcomes]atomic.Uint64
	duration *metrics.Histogram
	noAds    [origins]atomic.Uint64
	masked   atomic.Uint64 // errors of SSPs that on_error replaced
}

// noRoute is the value of the label `route` if no route matched.
const noRoute = logs.NoRoute
