package proxy

import (
	"sync/atomic"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
)

// origin is the party that decided that a response has no ad. It is the label origin of adbuffer_no_ad_total.
type origin uint8

const (
	byProxy origin = iota // adbuffer: it sent no_ad for a filtered or failed request, or in place of an SSP's error or unreadable response
	bySSP                 // the SSP had no bid
	origins
)

var originNames = [origins]string{"proxy", "ssp"}

// routeStats holds the counters of a route, or of the requests that match no route. Metrics and the admin page read them.
type routeStats struct {
	name     string
	outcomes [exchange.Outcomes]atomic.Uint64
	duration *metrics.Histogram
	noAds    [origins]atomic.Uint64
	masked   atomic.Uint64 // error and unreadable responses of SSPs that on_error replaced
	merged   atomic.Uint64 // responses with the outcome Merged that contain a bid, or the fill of an SSP
	// preflights counts the CORS preflight requests that adbuffer responds to because of routes[].cors. They request no
	// ad, so outcomes and duration do not include them.
	preflights atomic.Uint64
}

// preflightOutcome is the value of the label `outcome` for preflights.
const preflightOutcome = "preflight"

// noRoute is the value of the label `route` if no route matched.
const noRoute = logs.NoRoute
