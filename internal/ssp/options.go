package ssp

import (
	"time"

	"adbuffer/internal/fleet"
	"adbuffer/internal/httpheader"
)

// Options are the settings of an SSP; see config/adbuffer.yaml for what each
// does, and what raising it buys and costs.
type Options struct {
	Name string
	// Scheme, Path and Query are the endpoints' common URL: "https", the raw
	// path, and the raw query without its question mark.
	Scheme, Path, Query string
	// Host is sent in place of the host of the endpoint that was connected to.
	Host string

	Policy *httpheader.Policy

	RequestTimeout time.Duration // 0 = the deadline alone
	// Patience is deadline.default less deadline.reserve: who gave the SSP so
	// long, or RequestTimeout where that is shorter, has a timeout held against
	// it. 0 = every timeout is.
	BlameAfter  time.Duration
	MaxInFlight int // 0 = no limit but the global one
	// MaxBufferedBytes bounds the bodies of responses that are held at once. 0 = no
	// bound but Request.Budget.
	MaxBufferedBytes int64
	Adaptive         AdaptiveOptions
	Breaker          BreakerOptions
	RetryAfterMax    time.Duration // 0 = Retry-After pauses nothing
	// RetryAfterShare is which share of the responses must be 429 before one of
	// them pauses the SSP, 0 to 1; 0 = a single 429 pauses.
	RetryAfterShare float64
	QPS             QPSOptions
	RetryMax        int
	RetryStale      RetryStale
	Hedge           HedgeOptions
	RewriteTmax     bool
	Gzip            GzipOptions
	NoBidBody       NoBidBody
	// PipelineAll lets POST share a pipelined connection with others.
	PipelineAll bool
}

// AdaptiveOptions are the settings `adaptive`.
type AdaptiveOptions struct {
	Enabled bool
	Floor   int // ≥ 1
}

// BreakerOptions are the settings `breaker`.
type BreakerOptions struct {
	Enabled      bool
	Window       time.Duration
	MinRequests  int     // in the window; below, nothing is shed
	FailureRatio float64 // 0 to 0.99; up to it nothing is shed
	MinProbe     float64 // the share let through when everything fails
	DryRun       bool
}

// QPSOptions are the settings `qps`.
type QPSOptions struct {
	Limit  float64 // requests a second, 0 = no limit
	Burst  int     // 0 = a tenth of Limit, at least 1
	DryRun bool
	// Fleet is where the tokens come from where the limit is that of all replicas
	// together, and has the same Limit and Burst; nil where it is this one's own.
	Fleet *fleet.Bucket
}

// BurstInForce is Burst, or what 0 stands for.
func (o *QPSOptions) BurstInForce() int {
	if o.Burst > 0 {
		return o.Burst
	}
	return max(1, int(o.Limit/10))
}

// HedgeOptions are the settings `hedge`.
type HedgeOptions struct {
	Enabled  bool
	Quantile float64 // 0.5 to 0.999
}

// GzipOptions are the settings `gzip_request`.
type GzipOptions struct {
	Enabled  bool
	MinBytes int // smaller bodies go as they are
}

// RetryStale is what is done with a request whose reused HTTP/1 connection
// closed before the first byte of an answer.
type RetryStale uint8

// The values of `retry.stale`.
const (
	StaleIdempotent RetryStale = iota // send GET and HEAD again
	StaleAll                          // send anything again, at the risk of its being processed twice
	StaleNever
)
