package tests

import (
	"fmt"
	"slices"
	"strings"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// legs is how many SSPs a request of a fan-out asks.
const legs = 8

// fanOutBid is the response of each SSP of a fan-out: a kilobyte with one bid.
var fanOutBid = `{"id":"1","cur":"USD","seatbid":[{"bid":[{"id":"1","impid":"1","price":0.5,"adm":"` + strings.Repeat("x", 900) + `"}]}]}`

// fanOutRequest returns the bid request of a fan-out, which has a kilobyte.
func fanOutRequest(path string) load.Template {
	return load.Template{Method: "POST", Path: path, Headers: []load.Field{{Name: "Content-Type", Value: "application/json"}},
		Literal: `{"id":"1","imp":[{"id":"1","bidfloor":0.42,"banner":{"w":300,"h":250}}],"site":{"id":"4711","domain":"publisher.example"},` +
			`"user":{"eids":"` + strings.Repeat("e", 800) + `"}}`}
}

// fanOutModes are the paths of the fan-outs, and the keys of their routes besides the mode.
var fanOutModes = []struct{ path, more string }{{"/all", ""}, {"/merged", ", merge: openrtb"}}

// fanOutProtocols are the protocols towards the SSPs of a fan-out.
var fanOutProtocols = []struct{ protocol, title string }{{"h1", "HTTP/1.1"}, {"pipelined", "pipelined"}, {"h2tls", "HTTP/2 over TLS"}}

// addFanOuts starts adbuffers that ask several SSPs for each request, and adds their rows.
func (c *comparison) addFanOuts() {
	for _, p := range fanOutProtocols {
		up := c.up["fan-out "+strings.ReplaceAll(p.protocol, "pipelined", "h1")]
		if up == nil {
			continue
		}
		var names []string
		setup := rig.Setup{OneCore: true, Config: rig.Config{Deadline: "2s"}}
		for i := range legs {
			ssp := c.sspOf(p.protocol, up)
			ssp.Name = fmt.Sprintf("s%d", i+1)
			setup.SSPs, names = append(setup.SSPs, ssp), append(names, ssp.Name)
		}
		for _, m := range fanOutModes {
			setup.Config.Routes = append(setup.Config.Routes, fmt.Sprintf("{name: %s, match: {path: %s}, mode: parallel-all, ssps: [%s]%s}",
				m.path[1:], m.path, strings.Join(names, ", "), m.more))
		}
		stage := c.Start(setup)
		for _, m := range fanOutModes {
			request := fanOutRequest(m.path)
			c.rows = append(c.rows, &peerRow{peer: "adbuffer", way: p.protocol + m.path, stage: stage,
				loads: peerLoads{rig.WRK(request, peerConns, c.length)},
				check: func() error { return fansOut(c.Ctx, stage, request) }})
		}
	}
}

// showFanOuts adds the table of fan-outs. A leg is one SSP's part of a request.
func (c *comparison) showFanOuts() {
	var t *results.Table
	for _, p := range fanOutProtocols {
		for _, m := range fanOutModes {
			i := slices.IndexFunc(c.rows, func(r *peerRow) bool { return r.way == p.protocol+m.path })
			if i < 0 {
				continue
			}
			if t == nil {
				t = c.Rep.Table(fmt.Sprintf("one bid request to %d SSPs, mode parallel-all", legs), "protocol to the SSPs",
					"CPU µs/leg", "of a GET to one SSP", "requests/s", "p50 ms", "p99 ms")
			}
			r, name := c.rows[i], "adbuffer "+p.title+m.more
			if r.void != "" {
				t.Add(r.allDoubts(), name, "void")
				continue
			}
			of := r.rounds[saturated]
			aLeg := func(f *rig.Figures) float64 { return f.CPUus / legs }
			single := c.row("adbuffer", p.protocol).rounds[saturated].median(cpuUs)
			t.Add(r.allDoubts(), name, spread(of.values(aLeg)), of.median(aLeg)/single, of.median(func(f *rig.Figures) float64 { return f.Rate }),
				of.median(p50), of.median(p99))
		}
	}
}
