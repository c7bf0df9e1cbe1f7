package ssp

import (
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
)

// Options are the settings of an SSP. config/reference.yaml explains those that operators set.
type Options struct {
	Name string
	// Scheme, Path and Query are common to all endpoints: "https", the raw path, and the raw query
	// without its question mark.
	Scheme, Path, Query string
	// Host is sent instead of the endpoint's host.
	Host string

	Policy *header.Policy

	RequestTimeout time.Duration // 0 = only the deadline applies
	// BlameAfter is deadline.default minus deadline.reserve. A timeout of a request that was sent counts against the
	// breaker and the endpoint only if the SSP had about this long, or RequestTimeout if that is shorter. 0 = every such
	// timeout counts.
	BlameAfter  time.Duration
	MaxInFlight int // 0 = only the global limit
	// MaxBufferedBytes bounds the bodies of requests and responses that are held at once. Requests
	// leave a quarter of it for responses. 0 = only Request.Budget bounds them.
	MaxBufferedBytes int64
	Breaker          BreakerOptions
	RetryAfterMax    time.Duration // 0 = Retry-After never pauses
	// RetryAfterShare is a share from 0 to 1. A 429 or 503 with Retry-After pauses the SSP only if more than this share of
	// the groups of clients, or all of them, got such a response in the last 10 s. A 429 pauses only if, in addition, at
	// least three responses of the last second, and this share of them, were 429. 0 = a single response pauses.
	RetryAfterShare float64
	QPS             QPSOptions
	Shape           ShapeOptions
	RetryMax        int
	RetryStale      RetryStale
	Hedge           HedgeOptions
	RewriteTmax     bool
	TmaxMargin      time.Duration       // RewriteTmax writes this much less than the remaining time
	When            []openrtb.Condition // on the body; a route asks the SSP only if all hold
	Edit            *openrtb.Edit       // of the body; nil = none
	MaxBodyBytes    int                 // an Edit that makes a body longer must not exceed it
	Compress        CompressOptions
	NoBidBody       NoBidBody
	// MaxResponseBytes bounds a body that is decoded.
	MaxResponseBytes int
	// Lag measures the time in which adbuffer did not run, which counts against no SSP. nil = it measures
	// nothing.
	Lag *lag.Meter
	// PipelineAll lets POST share a pipelined connection with other requests.
	PipelineAll bool
}

// BreakerOptions are the settings `breaker`, which sheds a share of the requests to an SSP that fails.
// Package config says what the tags mean.
type BreakerOptions struct {
	Enabled      bool          `yaml:"enabled" default:"true"`
	Window       time.Duration `yaml:"window" default:"10s" min:"100ms" max:"10m"`
	MinRequests  int           `yaml:"min_requests" default:"20" min:"1" max:"10000000"` // in the window; below, nothing is shed
	FailureRatio float64       `yaml:"failure_ratio" default:"0.5" min:"0" max:"0.99"`
	MinProbe     float64       `yaml:"min_probe" default:"0.1" min:"0.001" max:"1"` // share of requests that is sent when everything fails
	DryRun       bool          `yaml:"dry_run"`                                     // only count
}

// QPSOptions are the settings `qps`.
type QPSOptions struct {
	Limit  float64 // requests a second, 0 = no limit
	Burst  int     // 0 = the default of BurstInForce
	DryRun bool
	Shaped bool // ShapeOptions.Keys is not empty
	// Fleet is the source of tokens if all replicas share the limit; it has the same Limit and
	// Burst. nil = the limit applies to this replica alone.
	Fleet *fleet.Bucket
}

// BurstInForce returns Burst, or the default that 0 stands for: a tenth of Limit, at least 1. With a shaper the default is
// at least 20, or Limit if that is less: the shaper bounds what is sent in a second, and with a small burst random arrivals
// often find no token for a request that the shaper chose.
func (o *QPSOptions) BurstInForce() int {
	if o.Burst > 0 {
		return o.Burst
	}
	least := 1.0
	if o.Shaped {
		least = max(1, min(o.Limit, 20))
	}
	return int(max(o.Limit/10, least))
}

// ShapeOptions are the settings `qps.shape`, with which the SSP drops the requests that are least likely to be filled.
// Package config says what the tags mean.
type ShapeOptions struct {
	Keys    []string `yaml:"keys" form:"shape key" unique:"."`             // what forms a segment, coarse to fine, at most shaper.MaxKeys; empty = requests are dropped at random
	Explore float64  `yaml:"explore" default:"0.03" min:"0.005" max:"0.5"` // share of what is sent that is drawn from what would be dropped
	MaxLoss float64  `yaml:"max_loss" min:"0" max:"0.5"`                   // share of the fills that may be lost by dropping requests below the limit; 0 = none are dropped below the limit
	DryRun  bool     `yaml:"dry_run"`                                      // only learn and report
}

// HedgeOptions are the settings `hedge`: an idempotent request is sent a second time if it takes longer than
// Quantile of the earlier requests.
type HedgeOptions struct {
	Enabled  bool    `yaml:"enabled"`
	Quantile float64 `yaml:"quantile" default:"0.95" min:"0.5" max:"0.999"`
}

// CompressOptions are the settings `compress`.
type CompressOptions struct {
	Coding   Coding `yaml:"coding" default:"none" words:"none gzip zstd"`
	MinBytes int    `yaml:"min_bytes" default:"1024" min:"0" max:"1073741824"` // smaller bodies are not compressed
}

// RetryStale says which requests are retried when their reused HTTP/1 connection closed before the
// first byte of a response.
type RetryStale string

// The values of `retry.stale`. Another one means StaleIdempotent.
const (
	StaleIdempotent RetryStale = "idempotent" // retry GET and HEAD
	StaleAll        RetryStale = "all"        // retry any method; the SSP may process the request twice
	StaleNever      RetryStale = "never"
)
