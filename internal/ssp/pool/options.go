package pool

import (
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// Options are the settings of a pool. config/reference.yaml says what each setting does, and what
// raising it buys and costs.
type Options struct {
	SSP string // for messages and metrics

	MaxConns      int // ≥ 1; connections open, being dialled, or being closed
	MaxHTTP2Conns int // ≥ 1; part of MaxConns
	Auto          AutoSize
	MinIdle       int           // connections that stay open without requests
	MaxIdle       int           // 0 = a new connection for each request, if connections are exclusive
	IdleTimeout   time.Duration // 0 = no limit
	MaxAge        time.Duration // ±10 %; 0 = no limit
	MaxRequests   int           // per connection; 0 = no limit

	MaxPending     int // waiting requests beyond those that dials will serve; 0 = none, -1 = no limit
	PendingTimeout time.Duration
	// Fair gives each Exchange.FairKey its share of the places while requests wait.
	Fair bool

	MaxDials   int // ≥ 1
	BackoffMin time.Duration
	BackoffMax time.Duration
	// ConnectTimeout and TLSTimeout bound a dial, and so the wait for one. TLSTimeout is 0 if the
	// SSP uses cleartext.
	ConnectTimeout, TLSTimeout time.Duration
	// Lag extends the times of dials, of the waits for them, and of health checks. nil = none is
	// measured. SetOptions does not change it.
	Lag *lag.Meter

	// Protocol is the protocol of all connections, or Unknown if ALPN decides.
	Protocol exchange.Protocol
	// PipelineDepth and MaxStreams are the maximum places of a connection of these protocols.
	PipelineDepth, MaxStreams int

	// Endpoints are the SSP's endpoints. SetOptions may add and remove some. The Dialer must know
	// new endpoints before SetOptions is called.
	Endpoints []balancer.Options
	Ejection  balancer.Ejection
	// HealthCheck's results put endpoints out too.
	HealthCheck HealthCheck
	SlowStart   time.Duration        // a returned endpoint gets its full share after this time
	Events      func(balancer.Event) // called for each event, in its own goroutine; may be nil

	// ConnVersion counts the changes of the settings that apply only to new connections. When
	// SetOptions raises it, the pool replaces open connections within renewal.
	ConnVersion int
}

// dialLimit returns how long a dial may take.
func (o *Options) dialLimit() time.Duration { return o.ConnectTimeout + o.TLSTimeout }

// waitForDial returns how long a request waits for a dial. It is longer than dialLimit, so that the
// request gets the error of a failed dial.
func (o *Options) waitForDial() time.Duration { return o.dialLimit() + 2*dialGrace }

// PlacesPerConn returns the maximum places of a connection with the protocol, 1 if the protocol is
// unknown.
func (o *Options) PlacesPerConn(pr exchange.Protocol) int {
	switch pr {
	case exchange.HTTP2:
		return o.MaxStreams
	case exchange.HTTP1Pipelined:
		return o.PipelineDepth
	default:
		return 1
	}
}

// balancer returns the settings of the balancer.
func (o *Options) balancer() balancer.Settings {
	return balancer.Settings{
		Endpoints: o.Endpoints, Ejection: o.Ejection, SlowStart: o.SlowStart,
		Checked: o.HealthCheck.Path != "", Unhealthy: o.HealthCheck.Unhealthy, Healthy: o.HealthCheck.Healthy,
	}
}
