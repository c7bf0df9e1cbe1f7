package pool

import (
	"math/rand/v2"
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// Options are the settings of a pool; see config/adbuffer.yaml for what each
// does, and what raising it buys and costs.
type Options struct {
	SSP string // for messages and metrics

	MaxConns      int           // ≥ 1; open, being dialled, or being closed
	MaxHTTP2Conns int           // ≥ 1; of MaxConns
	MinIdle       int           // open even if nothing asks
	MaxIdle       int           // 0 = a connection per request, where connections are exclusive
	IdleTimeout   time.Duration // 0 = no limit
	MaxAge        time.Duration // ±10 %; 0 = no limit
	MaxRequests   int           // per connection; 0 = no limit

	MaxPending     int // waits beyond those for dials; 0 = none, -1 = no limit
	PendingTimeout time.Duration

	MaxDials   int // ≥ 1
	BackoffMin time.Duration
	BackoffMax time.Duration
	// ConnectTimeout and TLSTimeout bound a dial, and so the wait for one.
	// TLSTimeout is 0 where the SSP is cleartext.
	ConnectTimeout, TLSTimeout time.Duration

	// Protocol is what all connections will speak, Unknown where ALPN decides.
	Protocol upstream.Protocol
	// PipelineDepth and MaxStreams are the places that a connection of these
	// protocols has at best.
	PipelineDepth, MaxStreams int

	// Edition counts what connections are opened with, and keep. Where SetOptions
	// raises it, those that are open are replaced within renewal.
	Edition int
}

// renewal is within how long the connections of an earlier edition are replaced:
// one after the other, so that not all of them are dialled at once.
const renewal = 5 * time.Second

// dialLimit is how long a dial may take.
func (o *Options) dialLimit() time.Duration { return o.ConnectTimeout + o.TLSTimeout }

// waitForDial is how long a request waits for a dial: somewhat longer than a dial
// takes, so that the request learns why the dial failed.
func (o *Options) waitForDial() time.Duration { return o.dialLimit() + 2*dialerFirst }

// placesPerConn is how many places a connection of the given protocol has at
// best, 1 while that is unknown.
func (o *Options) placesPerConn(pr upstream.Protocol) int {
	switch pr {
	case upstream.HTTP2:
		return o.MaxStreams
	case upstream.HTTP1Pipelined:
		return o.PipelineDepth
	default:
		return 1
	}
}

// Options returns the pool's settings.
func (p *Pool) Options() Options {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opts
}

// SetOptions changes the settings of a running pool; SSP and Protocol must be
// what they were. What is now one connection too many goes as soon as nothing
// is outstanding on it, idle ones first and at once; where more may be opened,
// those who wait get it at once. Requests that already wait keep the time that
// they were given, but those who are beyond a lowered MaxPending are refused.
func (p *Pool) SetOptions(o Options) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.opts
	if o.SSP != old.SSP || o.Protocol != old.Protocol {
		panic("BUG: SSP and Protocol of a pool never change")
	}
	if p.dead {
		return
	}
	p.opts = o
	p.governor.min, p.governor.max = o.BackoffMin, o.BackoffMax
	if o.PipelineDepth != old.PipelineDepth || o.MaxStreams != old.MaxStreams {
		p.seenPlaces = 0
	}
	for m := range p.members {
		if o.MaxAge != old.MaxAge {
			m.retireAt = p.retireAt(m.opened)
		}
		p.renewLocked(m, time.Now())
	}
	p.trimLocked()
	p.serveLocked(time.Now())
	p.warmedLocked()
}

// renewLocked has m replaced soon, where it was opened with what no longer holds.
func (p *Pool) renewLocked(m *member, now time.Time) {
	if m.edition == p.opts.Edition {
		return
	}
	if at := now.Add(rand.N(renewal)); m.retireAt.IsZero() || at.Before(m.retireAt) {
		m.retireAt = at
	}
}

// trimLocked gives up what is beyond max_idle, max_conns and max_http2_conns:
// of the idle connections those that were used least recently, of the
// multiplexed ones those that are free soonest. Exclusive ones that are lent go
// when they come back.
func (p *Pool) trimLocked() {
	n := max(0, min(len(p.idle), max(p.surplusLocked(), len(p.idle)-p.opts.MaxIdle)))
	for _, m := range p.idle[:n] {
		p.retireLocked(m, upstream.ClosedDrain)
	}
	p.idle = slices.Delete(p.idle, 0, n)
	for len(p.shared) > 0 && (p.surplusLocked() > 0 || len(p.shared) > p.sharedCapLocked()) {
		least := p.shared[0]
		for _, m := range p.shared {
			if m.inUse < least.inUse {
				least = m
			}
		}
		p.retireLocked(least, upstream.ClosedDrain)
	}
}

// surplusLocked is how many connections that still lend are beyond max_conns,
// which only a change of settings brings about.
func (p *Pool) surplusLocked() int { return len(p.members) - p.draining - p.opts.MaxConns }

// sharedCapLocked is how many multiplexed connections may lend.
func (p *Pool) sharedCapLocked() int {
	if p.opts.Protocol == upstream.HTTP1Pipelined {
		return p.opts.MaxConns
	}
	return min(p.opts.MaxHTTP2Conns, p.opts.MaxConns)
}
