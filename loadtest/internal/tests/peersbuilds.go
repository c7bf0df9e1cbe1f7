package tests

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"adbuffer/loadtest/internal/rig"
)

// maxMoreCPU is how many times the CPU of the other build a request may take.
const maxMoreCPU = 1.02

// compareBuilds measures how much CPU a request takes in adbuffer and in another build of it. Both run on one core at the
// same time, each with half of the clients, so that whatever slows the machine slows both: from round to round their ratio
// varies by 1 %, that of builds that take turns by 7 %.
func (c *comparison) compareBuilds() {
	c.Needs("nginx")
	c.Needs("h2load")
	c.Rep.Note("Both builds share a core at the same time, with %d clients each. wrk, h2load and upstream share the other core. "+
		"Ratios are of %d rounds: the median, with the least and the most.", peerConns/2, c.rounds)
	builds := []map[string]*rig.Stage{c.startPeer(peers[0]), nil}
	c.Adbuffer = c.than
	builds[1] = c.startPeer(peers[0])
	ways := map[string]clientWay{}
	for _, protocol := range peers[0].upstreams {
		ways["to the upstream: "+protocol] = clientWay{protocol: protocol, load: rig.WRK(c.request, peerConns/2, c.length)}
	}
	for _, w := range c.clientWays(peerConns / 2) {
		ways["clients: "+w.name] = w
	}
	t := c.Rep.Table("CPU µs to forward a request in two builds, at the same time on one core", "way", "this build", "the other build", "this of the other")
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		w := ways[name]
		now, then := builds[0][w.protocol], builds[1][w.protocol]
		if now == nil {
			continue
		}
		c.Check(c.returnsExactly(now)())
		c.Check(c.returnsExactly(then)())
		var these, others rounds
		for n := range c.rounds {
			c.Next("peers: %s, round %d of %d", name, n+1, c.rounds)
			var other *rig.Figures
			these = append(these, now.Beside(w.load, func(context.Context) { other = then.Measure(w.load) }))
			others = append(others, other)
		}
		ratios := these.ratios(others, cpuUs)
		t.Add(nil, name, spread(these.values(cpuUs)), spread(others.values(cpuUs)), spread(ratios))
		c.Rep.Promise(fmt.Sprintf("%s: a request takes at most %v times the CPU of the other build", name, maxMoreCPU), rig.Median(ratios) <= maxMoreCPU,
			slices.Concat(these, others).doubts(), "%.3f times.", rig.Median(ratios))
	}
}
