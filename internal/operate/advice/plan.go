// Package advice computes how large a pool should be, for the advice to operators and for adbuffer
// plan. The mathematics is in package capacity.
package advice

import (
	"cmp"
	"fmt"
	"strings"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/ssp/dial"
)

// Input is the input of a plan, as given by the flags of adbuffer plan.
type Input struct {
	capacity.PlanInput
	SSP      string // its name in the YAML; "" = all that were observed
	Protocol string // a dial.Mode
	// ProtocolGiven, StreamsGiven and FileDescriptorsGiven mean that the operator set the value, which then
	// replaces the observed one.
	ProtocolGiven, StreamsGiven, FileDescriptorsGiven bool
}

// Plan holds one or several SSPs with the pools that they need.
type Plan []planned

// planned is one SSP of a plan.
type planned struct {
	name      string
	protocol  string
	current   int // value of the setting that the plan sets; 0 = unknown
	conns     int // value of max_conns; 0 = unknown
	autoLimit int // places that pool.auto allows; 0 = it is off
	places    int // places that the pool has; 0 = unknown
	measured  bool
	in        capacity.PlanInput
	result    capacity.PlanResult
}

// defaultDepth is the default of pool.pipeline_depth.
const defaultDepth = 8

// The highest value of pool.max_conns, and its default.
const (
	maxConfigConns  = 65536
	defaultMaxConns = 256
)

// FromNumbers plans for one SSP with the rate and the latency of in. Its errors name the flags of adbuffer plan.
func FromNumbers(in Input) (Plan, error) {
	p := planned{name: in.SSP, protocol: in.Protocol, in: in.PlanInput}
	if p.name == "" {
		p.name = "your-ssp"
	}
	if p.pipelined() && !in.StreamsGiven {
		p.in.Streams = defaultDepth
	}
	var err error
	p.result, err = capacity.Plan(p.in)
	if err != nil {
		return nil, err
	}
	return Plan{p}, nil
}

// FromObserved plans for the SSPs that were observed at the URL from, or only for the SSP that in names.
func FromObserved(in Input, from string, all []Observation) (Plan, error) {
	var plan Plan
	var idle []string
	for i := range all {
		o := &all[i]
		if in.SSP != "" && o.name != in.SSP {
			continue
		}
		if o.rate <= 0 || o.hold <= 0 {
			idle = append(idle, o.name)
			continue
		}
		p := o.planned(&in)
		var err error
		p.result, err = capacity.Plan(p.in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		plan = append(plan, p)
	}
	switch {
	case len(plan) > 0:
		return plan, nil
	case len(idle) > 0:
		return nil, fmt.Errorf("%s: no requests to %s in that time: nothing to plan with", from, strings.Join(idle, ", "))
	}
	return nil, noSSP(from, in.SSP)
}

// noSSP is the error if there is nothing to plan for at the URL from. name is "" if all SSPs were asked for.
func noSSP(from, name string) error {
	if name != "" {
		return fmt.Errorf("%s: there is no SSP %q", from, name)
	}
	return fmt.Errorf("%s: there are no SSPs", from)
}

// planned returns the observed SSP, with the rate of all replicas.
func (o *Observation) planned(in *Input) planned {
	p := planned{name: o.name, protocol: o.protocol, current: o.conns, conns: o.conns, autoLimit: o.autoLimit, places: o.places, measured: true, in: in.PlanInput}
	if in.ProtocolGiven {
		p.protocol = in.Protocol
	}
	p.in.Rate, p.in.P50, p.in.P99 = o.rate*float64(in.Replicas), o.hold, o.hold
	if p.http2() {
		p.current = o.http2Conns
	}
	p.in.Peak = o.peak
	p.in.LocalAddresses = max(p.in.LocalAddresses, o.sources)
	if !in.FileDescriptorsGiven {
		p.in.FileDescriptors = cmp.Or(o.openFiles, in.FileDescriptors)
	}
	switch {
	case in.StreamsGiven:
	case p.pipelined():
		p.in.Streams = cmp.Or(o.depth, defaultDepth)
	case p.http2():
		p.in.Streams = cmp.Or(o.streams, in.Streams)
	}
	return p
}

// settings returns the keys under pool that the plan sets, in the order of the YAML.
func (p *planned) settings() []setting {
	name, n := p.sizeSetting()
	all := []setting{{name, min(max(n, p.current), maxConfigConns)}}
	switch {
	case p.http2():
		if n > cmp.Or(p.conns, defaultMaxConns) {
			all = append(all, setting{"max_conns", min(n, maxConfigConns)})
		}
		all = append(all, setting{"max_streams_per_conn", p.in.Streams})
	case p.pipelined():
		all = append(all, setting{"pipeline_depth", p.in.Streams})
	}
	return all
}

// setting is a key under pool, and its value.
type setting struct {
	key   string
	value int
}

// shared reports whether a connection may carry several requests at once. If ALPN chooses the protocol, it may.
func (p *planned) shared() bool { return p.protocol != string(dial.HTTP1) }

func (p *planned) pipelined() bool { return p.protocol == string(dial.HTTP1Pipelined) }

func (p *planned) http2() bool {
	return p.protocol == string(dial.HTTP2) || p.protocol == string(dial.H2C)
}

// sizeSetting returns the key under pool that bounds the connections, and the value that the plan needs.
func (p *planned) sizeSetting() (name string, value int) {
	r := &p.result
	switch {
	case p.http2():
		return "max_http2_conns", r.HTTP2GrownConns
	case p.pipelined():
		return "max_conns", r.HTTP2Conns
	default:
		return "max_conns", r.Places
	}
}

// warnings returns the plan's warnings, and warns of a load that counts refused requests and of a value above the
// configuration's range. Warnings about descriptors and ports count HTTP/1 connections, so a plan for HTTP/2 only has none.
func (p *planned) warnings() []string {
	var all []string
	for _, w := range p.result.Warnings {
		if !p.http2() || !strings.HasPrefix(w, "file descriptors:") && !strings.HasPrefix(w, "ephemeral ports:") {
			all = append(all, w)
		}
	}
	if p.places > 0 && p.result.Load > float64(p.places) {
		all = append(all, countsRefused)
	}
	if name, n := p.sizeSetting(); n > maxConfigConns {
		all = append(all, fmt.Sprintf("%s ends at %d: spread the rate over more replicas", name, maxConfigConns))
	}
	return all
}
