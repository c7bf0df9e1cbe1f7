package capacity

import (
	"math"
	"time"
)

// PlanInput is the load of one SSP and the limits of the system. Start from [DefaultPlanInput] and set Rate, P50, P99
// and Replicas. A field of 0 is an error, unless its comment gives 0 a meaning. Errors name the flags of adbuffer
// plan, which stand in brackets below.
type PlanInput struct {
	Rate     float64       // [rps] requests per second to the SSP at peak, of all replicas together
	P50, P99 time.Duration // [p50, p99] quantiles of the time that a place is held
	Replicas int           // [replicas] processes that share the rate evenly

	Peak         int           // [peak] the highest number of places that were in use at once in one replica; 0 = unknown
	WaitingShare float64       // [waiting] share of requests that may wait, between 0 and 1
	SlowHold     time.Duration // [slow] mean hold on a bad day; 0 = the longer of 2.5 × P50 and twice the mean
	Streams      int           // [streams] requests that one HTTP/2 connection carries at once

	FileDescriptors int           // [file-descriptors] hard limit of one process (RLIMIT_NOFILE); Go raises the soft one to it
	PortsPerAddress int           // [ports] ephemeral ports of one source address (net.ipv4.ip_local_port_range)
	SourceAddresses int           // [source-addresses] addresses of the NAT that all replicas share; 0 = no NAT, each replica has its own addresses
	LocalAddresses  int           // [local-addresses] addresses that each replica connects from in turn, ssps[].source_addresses
	SSPAddresses    int           // [ssp-addresses] addresses that the SSP listens on
	MaxAge          time.Duration // [max-age] life of a connection, pool.max_age; 0 = no limit
}

// Defaults of Linux: the hard limit of file descriptors of its first process (INR_OPEN_MAX), which distributions and
// container runtimes often raise, and the ports of net.ipv4.ip_local_port_range, 32768 to 60999
// (Documentation/networking/ip-sysctl).
const (
	linuxFileDescriptors = 4096
	linuxEphemeralPorts  = 60999 - 32768 + 1
)

// timeWait is how long Linux keeps the port of a connection that adbuffer closed first
// (TCP_TIMEWAIT_LEN).
const timeWait = 60 * time.Second

// PlacesForPeak returns the number of places for a pool of which peak places were in use at once: a fifth more.
func PlacesForPeak(peak int) int { return int(math.Ceil(1.2 * float64(peak))) }

// ownFileDescriptors is a reserve for files other than connections: listeners, epoll, DNS sockets,
// certificates, logs.
const ownFileDescriptors = 64

// DefaultPlanInput returns a PlanInput in which only Rate, P50, P99 and Replicas are still to be set.
func DefaultPlanInput() PlanInput {
	return PlanInput{
		WaitingShare:    DefaultWaitingShare,
		Streams:         100,
		FileDescriptors: linuxFileDescriptors,
		PortsPerAddress: linuxEphemeralPorts,
		LocalAddresses:  1,
		SSPAddresses:    1,
		MaxAge:          10 * time.Minute,
	}
}

// PlanResult is the size of the pool of one replica for an SSP.
type PlanResult struct {
	Rate     float64       // requests per second
	MeanHold time.Duration // W
	Load     float64       // L = Rate × MeanHold, the mean number of places in use

	Places       int           // N by exact Erlang C, or more if the peak needs more: pool.max_conns over HTTP/1
	Saturation   float64       // L/N, the expected mean of pool_saturation_ratio
	WaitingShare float64       // share of requests that wait with N places; at most PlanInput.WaitingShare
	MeanWait     time.Duration // mean over all requests, including those that do not wait
	FullRate     float64       // requests per second that fill N places if W stays the same
	SlowHold     time.Duration // PlanInput.SlowHold, or its default
	SlowFullRate float64       // requests per second that fill N places when W is SlowHold

	// Places and rate by the rule of thumb L + 2·√L, to compare with the exact figures. Both are unrounded.
	RulePlaces       float64
	RuleSlowFullRate float64 // requests per second that fill RulePlaces when W is SlowHold

	HTTP2Conns      int // the smallest number of connections that carry N requests at once
	HTTP2GrownConns int // the lowest pool.max_http2_conns with which no connection is more than half full

	FileDescriptors int // needed by this SSP over HTTP/1, including its clients' connections
	PortsPerAddress int // needed by HTTP/1 on one source address, towards one address of the SSP

	// Warnings has a sentence for each limit of the system that the plan exceeds. It names the need, the limit and
	// the setting to change.
	Warnings []string
}

// Plan sizes the pools for one SSP. It assumes Poisson arrivals, spread evenly over the replicas,
// and lognormal holds. The error has a line for each invalid number.
func Plan(in PlanInput) (PlanResult, error) {
	if err := in.validate(); err != nil {
		return PlanResult{}, err
	}
	r := PlanResult{
		Rate:     in.Rate / float64(in.Replicas),
		MeanHold: lognormalMean(in.P50, in.P99),
		SlowHold: in.SlowHold,
	}
	if r.SlowHold == 0 {
		r.SlowHold = max(in.P50*5/2, 2*r.MeanHold)
	}
	r.Load = Load(r.Rate, r.MeanHold)

	r.Places = max(Places(r.Rate, r.MeanHold, in.WaitingShare), PlacesForPeak(in.Peak))
	r.Saturation = r.Load / float64(r.Places)
	r.WaitingShare = erlangC(r.Places, r.Load) // Places exceeds the load
	r.MeanWait = meanWait(r.Rate, r.MeanHold, r.Places)
	r.FullRate = FullRate(float64(r.Places), r.MeanHold)
	r.SlowFullRate = FullRate(float64(r.Places), r.SlowHold)
	r.RulePlaces = squareRootPlaces(r.Load)
	r.RuleSlowFullRate = FullRate(r.RulePlaces, r.SlowHold)

	r.HTTP2Conns = HTTP2Conns(r.Places, in.Streams)
	r.HTTP2GrownConns = HTTP2GrownConns(r.Places, in.Streams)

	r.FileDescriptors = 2*r.Places + ownFileDescriptors // each place serves a client with its own connection
	r.PortsPerAddress = in.portsPerAddress(r.Places)
	r.Warnings = in.warnings(r)
	return r, nil
}

// portsPerAddress counts the ports of connections between one source address and one address of the SSP. It counts
// open connections, and connections that were closed because of their age within the last timeWait. Each pair of a
// source address and an SSP address has a port range of its own.
func (in PlanInput) portsPerAddress(places int) int {
	replicas, sources := 1, in.LocalAddresses
	if in.SourceAddresses > 0 { // behind a NAT, the source addresses are the NAT's
		replicas, sources = divideUp(in.Replicas, in.SourceAddresses), 1
	}
	open := float64(divideUp(places*replicas, in.SSPAddresses*sources))
	closing := 0.0
	if in.MaxAge > 0 {
		closing = open * timeWait.Seconds() / in.MaxAge.Seconds()
	}
	return int(math.Ceil(open + closing))
}
