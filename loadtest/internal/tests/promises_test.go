package tests

import (
	"testing"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/operate/replay"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Promises that weigh several figures hold on good figures and break on bad figures.
func TestPromisesHoldAndBreak(t *testing.T) {
	type judge = func(*results.Report)
	peers := func(pipelined, h2, h1 float64) judge {
		return func(r *results.Report) {
			c := &comparison{Rig: &rig.Rig{Rep: r}, rows: []*peerRow{measured("adbuffer", "h1", h1),
				measured("adbuffer", "pipelined", pipelined), measured("adbuffer", "h2tls", h2),
				measured("haproxy", "h1", 10), measured("haproxy", "h2tls", 10)}}
			c.judge()
		}
	}
	places := func(said int, inUse float64) judge {
		return func(r *results.Report) {
			judgeChange(r, new(results.Table), nil, "a change", &replay.Report{SSPs: []replay.SSP{{SSP: "a", Pool: &advice.Fit{Needs: said}}}}, map[string]*use{"a": {load: inUse}})
		}
	}
	type verdicts struct{ held, broken int }
	for name, c := range map[string]struct {
		judged judge
		want   verdicts
	}{
		"peers":                {peers(10, 11, 13), verdicts{held: 4}},
		"peers, pipelined":     {peers(11, 11, 13), verdicts{held: 3, broken: 1}},
		"peers, h2":            {peers(10, 12, 13), verdicts{held: 3, broken: 1}},
		"peers, p99 and p99.9": {peers(10, 11, 16), verdicts{held: 2, broken: 2}},
		"traffic":              {places(54, 60), verdicts{held: 1}},
		"traffic, rounded up":  {places(67, 60), verdicts{held: 1}},
		"traffic, too few":     {places(53, 60), verdicts{broken: 1}},
		"traffic, too many":    {places(68, 60), verdicts{broken: 1}},
	} {
		r := new(results.Report)
		c.judged(r)
		var got verdicts
		for _, v := range r.Verdicts {
			if v.Held {
				got.held++
			} else {
				got.broken++
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
