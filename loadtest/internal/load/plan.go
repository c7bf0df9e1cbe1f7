// Package load sends requests to a server and measures the latency of its responses.
//
// An open loop computes the time of each request before the run. It sends each request at that
// time, even if earlier responses are outstanding, as the users of a service do. Latency counts
// from that time.
//
// The generator must cost less than the server that it measures. Goroutines send and read HTTP/1.1 in cleartext, with
// fasthttp's parser.
package load

import (
	"cmp"
	"slices"
	"time"
)

// Protocol defines how requests use connections.
type Protocol string

// The protocols.
const (
	KeepAlive Protocol = "http1"           // one request at a time on a keep-alive connection
	Close     Protocol = "http1-close"     // one connection for each request
	Pipelined Protocol = "http1-pipelined" // up to Depth requests at a time on a connection
)

// Plan describes a whole run.
type Plan struct {
	Addr     string // host:port to connect to, which is the value of the Host field too
	Protocol Protocol
	Depth    int // of Pipelined

	// Open sends each request at its planned time. Otherwise the loop is closed: each connection
	// sends when it has a free place.
	Open    bool
	Poisson bool // random arrivals of an open loop

	Connections int
	Timeout     time.Duration
	Phases      []Phase // a closed loop uses only the durations
	// Requests ends a closed loop after this many requests; 0 is no limit. Before the second half of them, the loop
	// pauses for Pause.
	Requests int
	Pause    time.Duration

	Templates []Template
	// Deadline makes later responses failures of the kind Late; 0 = none are late.
	Deadline time.Duration
	// Statuses are the statuses of successful responses; empty is 200 to 299.
	Statuses []int
	// Echo requires the request's number in the field X-Echo-Cb of its response. A response with
	// another number is an error.
	Echo bool
	// EchoBody requires the request's number at the start of its response's body.
	EchoBody bool
	// Tick is the interval of Progress; 0 is a second.
	Tick time.Duration
}

func (p *Plan) prepare() {
	p.Timeout = cmp.Or(p.Timeout, 5*time.Second)
	p.Tick = cmp.Or(p.Tick, time.Second)
	if p.Depth == 0 || p.Protocol != Pipelined {
		p.Depth = 1
	}
}

func (p *Plan) expects(status int) bool {
	return len(p.Statuses) == 0 && status/100 == 2 || slices.Contains(p.Statuses, status)
}

// isResponse reports whether a is the response to request n. Its status is an expected one.
func (p *Plan) isResponse(a response, n uint64) bool {
	return (!p.Echo || isNumber(a.echo, n)) && (!p.EchoBody || isNumber(a.body[:min(len(a.body), numberDigits)], n))
}

func (p *Plan) length() time.Duration {
	var sum time.Duration
	for _, phase := range p.Phases {
		sum += phase.Duration
	}
	return sum
}

// phaseAt returns the index of the phase at t. After the end it returns the last phase.
func (p *Plan) phaseAt(t time.Duration) int {
	for i, phase := range p.Phases {
		if t < phase.Duration {
			return i
		}
		t -= phase.Duration
	}
	return len(p.Phases) - 1
}
