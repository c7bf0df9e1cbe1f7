package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"adbuffer/internal/config"
)

// shared reports whether connections of the plan's protocol carry several
// requests at once; where ALPN decides, it is planned for both.
func (p *planned) shared() bool {
	switch config.Protocol(p.protocol) {
	case config.ProtocolHTTP1:
		return false
	default:
		return true
	}
}

func (p *planned) http2() bool {
	return p.protocol == string(config.ProtocolHTTP2) || p.protocol == string(config.ProtocolH2C)
}

// setting is what the YAML sets, and to what.
func (p *planned) setting() (name string, value int) {
	r := &p.result
	switch {
	case p.http2():
		return "max_http2_conns", r.HTTP2GrownConns
	case p.protocol == string(config.ProtocolHTTP1Pipelined):
		return "max_conns", r.HTTP2Conns
	default:
		return "max_conns", r.Places
	}
}

// warnings are the plan's own and what the configuration cannot hold. Those
// about descriptors and ports count HTTP/1 connections, and go where there will
// be none.
func (p *planned) warnings() []string {
	var all []string
	for _, w := range p.result.Warnings {
		if !p.http2() || !strings.HasPrefix(w, "file descriptors:") && !strings.HasPrefix(w, "ephemeral ports:") {
			all = append(all, w)
		}
	}
	if name, n := p.setting(); n > maxConfigConns {
		all = append(all, fmt.Sprintf("%s ends at %d: spread the rate over more replicas", name, maxConfigConns))
	}
	return all
}

// pool.max_conns: the highest, and the default.
const (
	maxConfigConns  = 65536
	defaultMaxConns = 256
)

func printPlan(w io.Writer, plan []planned) {
	if len(plan) == 1 && !plan[0].measured {
		printOne(w, &plan[0])
	} else {
		printMany(w, plan)
	}
	printYAML(w, plan)
	printed := false
	for i := range plan {
		for _, text := range plan[i].warnings() {
			if !printed {
				fmt.Fprintln(w)
				printed = true
			}
			prefix := ""
			if plan[i].measured {
				prefix = plan[i].name + ": "
			}
			fmt.Fprintf(w, "warning: %s%s\n", prefix, text)
		}
	}
}

func printOne(w io.Writer, p *planned) {
	in, r := &p.in, &p.result
	fmt.Fprintf(w, "%s requests/s over %s, p50 %v, p99 %v, %s %% of the requests may wait\n\n",
		figure(in.Rate), plural(in.Replicas, "replica"), in.P50, in.P99, figure(100*in.WaitingShare))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(label, one, all string) { fmt.Fprintf(t, "%s\t%s\t%s\n", label, one, all) }
	each := func(v float64) string { return figure(v * float64(in.Replicas)) }
	row("", "per replica", "the SSP sees")
	row("requests/s (λ)", figure(r.Rate), figure(in.Rate))
	row("a place is held for, mean (W)", held(r.MeanHold), "")
	row("places busy on average (L = λ·W)", figure(r.Load), figure(r.TotalLoad))
	row("pool size, exact Erlang C (N)", figure(float64(r.Places)), figure(float64(r.TotalPlaces)))
	row("pool size, rule of thumb L + 2·√L", fmt.Sprintf("%.0f (%.2f)", math.Ceil(r.RulePlaces), r.RulePlaces), each(r.RulePlaces))
	row("requests that wait with N", figure(100*r.WaitingShare)+" %", "")
	row("mean wait with N", held(r.MeanWait), "")
	row("busy with N", figure(100*r.Saturation)+" %", "")
	row("N is full at", figure(r.FullRate)+" requests/s", each(r.FullRate))
	row(fmt.Sprintf("N is full at, when W is %s", held(r.SlowHold)), figure(r.SlowFullRate)+" requests/s", figure(r.TotalSlowFullRate))
	row("L + 2·√L is full at, then", figure(r.RuleSlowFullRate)+" requests/s", each(r.RuleSlowFullRate))
	if p.shared() {
		kind := "HTTP/2 connections"
		if p.protocol == string(config.ProtocolHTTP1Pipelined) {
			kind = "pipelined connections"
		}
		row(fmt.Sprintf("%s of %d, at least", kind, in.Streams), figure(float64(r.HTTP2Conns)), figure(float64(r.TotalHTTP2Conns)))
		row("the same, at most half full", figure(float64(r.HTTP2GrownConns)), figure(float64(r.TotalHTTP2GrownConns)))
	}
	if !p.http2() {
		row("file descriptors, HTTP/1 and its clients", figure(float64(r.FileDescriptors)), "")
		row("ports of an address, HTTP/1", figure(float64(r.PortsPerAddress)), "")
	}
	t.Flush() //nolint:errcheck // as for every print
}

func printMany(w io.Writer, plan []planned) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "ssp\tprotocol\treplicas\trequests/s\theld (W)\tbusy (L)\tN, Erlang C\tL + 2·√L\tconnections\tnow\tfull at\tfull when slow\tSSP sees\n")
	for i := range plan {
		p, r := &plan[i], &plan[i].result
		_, n := p.setting()
		now := "?"
		if p.now > 0 {
			now = figure(float64(p.now))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%.2f\t%d\t%s\t%s/s\t%s/s at %s\t%d\n", p.name, p.protocol, p.in.Replicas, figure(r.Rate), held(r.MeanHold),
			figure(r.Load), r.Places, r.RulePlaces, n, now, figure(r.FullRate), figure(r.SlowFullRate), held(r.SlowHold), n*p.in.Replicas)
	}
	t.Flush() //nolint:errcheck // as for every print
	fmt.Fprintf(w, "\nPer replica, but for the last column; %s %% of the requests may wait. Rates and holds are as measured.\n", figure(100*plan[0].in.WaitingShare))
}

// printYAML writes what to paste.
func printYAML(w io.Writer, plan []planned) {
	fmt.Fprintf(w, "\nssps:\n")
	for i := range plan {
		p := &plan[i]
		name, n := p.setting()
		note := ""
		switch {
		case p.now > 0 && n > p.now:
			note = fmt.Sprintf("   # now %d, which is too few", p.now)
		case p.now > 0:
			note = fmt.Sprintf("   # now %d, which is enough", p.now)
		}
		fmt.Fprintf(w, "  - name: %s\n    pool:\n      %s: %d%s\n", p.name, name, min(n, maxConfigConns), note)
		switch {
		case p.http2():
			if n > defaultMaxConns {
				fmt.Fprintf(w, "      max_conns: %d\n", min(n, maxConfigConns))
			}
			fmt.Fprintf(w, "      max_streams_per_conn: %d\n", p.in.Streams)
		case p.protocol == string(config.ProtocolHTTP1Pipelined):
			fmt.Fprintf(w, "      pipeline_depth: %d\n", p.in.Streams)
		case p.protocol == string(config.ProtocolAuto) && !p.measured:
			fmt.Fprintf(w, "      max_http2_conns: %d   # should it negotiate HTTP/2, with max_streams_per_conn: %d\n", min(p.result.HTTP2GrownConns, n), p.in.Streams)
		}
	}
}

// figure writes a number for people: whole from 100 on, three digits below.
func figure(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func held(d time.Duration) string {
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond / 10).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return figure(float64(n)) + " " + noun + "s"
}

// plannedJSON is one SSP of plan --json. Times are in seconds, shares 0 to 1;
// what is not called total is of one replica.
type plannedJSON struct {
	SSP              string   `json:"ssp"`
	Protocol         string   `json:"protocol"`
	Replicas         int      `json:"replicas"`
	RPS              float64  `json:"rps"`
	HoldSeconds      float64  `json:"hold_seconds"`
	Load             float64  `json:"load"`
	Places           int      `json:"places"`      // exact Erlang C
	RulePlaces       float64  `json:"rule_places"` // L + 2·√L
	WaitingShare     float64  `json:"waiting_share"`
	MeanWaitSeconds  float64  `json:"mean_wait_seconds"`
	Saturation       float64  `json:"saturation"`
	FullRPS          float64  `json:"full_rps"`
	SlowHoldSeconds  float64  `json:"slow_hold_seconds"`
	SlowFullRPS      float64  `json:"slow_full_rps"`
	RuleSlowFullRPS  float64  `json:"rule_slow_full_rps"`
	Streams          int      `json:"streams"`
	HTTP2Conns       int      `json:"http2_conns"`       // at least
	HTTP2GrownConns  int      `json:"http2_grown_conns"` // at most half full
	FileDescriptors  int      `json:"file_descriptors"`
	PortsPerAddress  int      `json:"ports_per_address"`
	TotalRPS         float64  `json:"total_rps"`
	TotalPlaces      int      `json:"total_places"`
	TotalHTTP2Conns  int      `json:"total_http2_conns"`
	TotalSlowFullRPS float64  `json:"total_slow_full_rps"`
	Setting          string   `json:"setting"` // of pool
	Value            int      `json:"value"`
	Now              int      `json:"now,omitempty"`
	Warnings         []string `json:"warnings"`
}

func printPlanJSON(w io.Writer, plan []planned) error {
	all := make([]plannedJSON, len(plan))
	for i := range plan {
		p, r := &plan[i], &plan[i].result
		name, n := p.setting()
		all[i] = plannedJSON{
			SSP: p.name, Protocol: p.protocol, Replicas: p.in.Replicas, RPS: r.Rate, HoldSeconds: r.MeanHold.Seconds(), Load: r.Load,
			Places: r.Places, RulePlaces: r.RulePlaces, WaitingShare: r.WaitingShare, MeanWaitSeconds: r.MeanWait.Seconds(), Saturation: r.Saturation,
			FullRPS: r.FullRate, SlowHoldSeconds: r.SlowHold.Seconds(), SlowFullRPS: r.SlowFullRate, RuleSlowFullRPS: r.RuleSlowFullRate,
			Streams: p.in.Streams, HTTP2Conns: r.HTTP2Conns, HTTP2GrownConns: r.HTTP2GrownConns, FileDescriptors: r.FileDescriptors, PortsPerAddress: r.PortsPerAddress,
			TotalRPS: p.in.Rate, TotalPlaces: r.TotalPlaces, TotalHTTP2Conns: r.TotalHTTP2Conns, TotalSlowFullRPS: r.TotalSlowFullRate,
			Setting: name, Value: n, Now: p.now, Warnings: append([]string{}, p.warnings()...),
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"waiting": plan[0].in.WaitingShare, "ssps": all})
}
