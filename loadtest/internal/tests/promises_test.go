package tests

import (
	"testing"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Promises that weigh several figures hold on good ones and break on bad ones. A promise that other work of the
// machine can break is doubted if there are doubts about its figures.
func TestPromisesHoldBreakAndAreDoubted(t *testing.T) {
	type judge = func(*results.Report)
	// The log names it after 3 s, metrics after 4 s, an alert after alerted, and that ends after quiet.
	told := func(alerted, quiet time.Duration, misleading ...string) judge {
		end := time.Now()
		at := func(first, last time.Duration) naming { return naming{first: end.Add(first), last: end.Add(last)} }
		s := &scene{incident: &incident{name: "a"}, began: end, ended: end, names: names{misleading: misleading,
			by: map[string]naming{"log": at(3*time.Second, -time.Second), "metrics": at(4*time.Second, 0), "alert": at(alerted, quiet)}}}
		return func(r *results.Report) { judgeIncidents(r, []*scene{s}) }
	}
	peers := func(pipelined, h2, h1 float64) judge {
		return func(r *results.Report) {
			c := &comparison{Rig: &rig.Rig{Rep: r}, rows: []*peerRow{measured("adbuffer", "h1", h1),
				measured("adbuffer", "pipelined", pipelined), measured("adbuffer", "h2tls", h2),
				measured("haproxy", "h1", 10), measured("haproxy", "h2tls", 10)}}
			c.judge()
		}
	}
	auctioned := func(queries, filled uint64, us, cpu float64, doubts ...string) judge {
		row := func(asks, proxy string, filters bool, queries, filled uint64, cpu float64) *exchangeRow {
			// Two SSPs want requests from C0, one from C1.
			f := &rig.Figures{Usage: rig.Usage{CPUus: cpu}, Doubts: doubts, Summary: load.Summary{Answered: 2000,
				Statuses: map[int]uint64{200: filled}, Classes: []load.Summary{{Name: "C0", Answered: 1000}, {Name: "C1", Answered: 1000}}}}
			f.SSP.Responded = queries
			return &exchangeRow{asks: asks, proxy: proxy, filters: filters, rounds: rounds{f}}
		}
		return func(r *results.Report) {
			judgeExchange(r, []*exchangeRow{row("all five", "adbuffer", false, 10000, 1900, 100),
				row("all five", "adbuffer", true, queries, filled, cpu), row("one", "adbuffer", true, 2000, 1900, us),
				row("one", "HAProxy", true, 2000, 1900, 20)})
		}
	}
	type verdicts struct{ held, broken, doubted int }
	for name, c := range map[string]struct {
		judged judge
		want   verdicts
	}{
		"exchange":                   {auctioned(3000, 1900, 30, 99), verdicts{held: 4}},
		"exchange, queries":          {auctioned(3001, 1900, 30, 99), verdicts{held: 3, broken: 1}},
		"exchange, doubtful queries": {auctioned(2999, 1900, 30, 99, "late"), verdicts{held: 3, doubted: 1}},
		"exchange, fills":            {auctioned(3000, 1899, 30, 99), verdicts{held: 3, broken: 1}},
		"exchange, CPU":              {auctioned(3000, 1900, 30, 100), verdicts{held: 3, broken: 1}},
		"exchange, HAProxy":          {auctioned(3000, 1900, 31, 99), verdicts{held: 3, broken: 1}},
		"exchange, doubtful HAProxy": {auctioned(3000, 1900, 31, 99, "late"), verdicts{held: 3, doubted: 1}},
		"incidents":                  {told(alertWithin, alertQuiet), verdicts{held: 3}},
		"incidents, named":           {told(alertWithin+1, alertQuiet), verdicts{held: 2, broken: 1}},
		"incidents, misleading":      {told(alertWithin, alertQuiet, "AdbufferOther"), verdicts{held: 2, broken: 1}},
		"incidents, quiet":           {told(alertWithin, alertQuiet+1), verdicts{held: 2, broken: 1}},
		"peers":                      {peers(10, 11, 13), verdicts{held: 4}},
		"peers, pipelined":           {peers(11, 11, 13), verdicts{held: 3, broken: 1}},
		"peers, h2":                  {peers(10, 12, 13), verdicts{held: 3, broken: 1}},
		"peers, p99 and p99.9":       {peers(10, 11, 16), verdicts{held: 2, broken: 2}},
	} {
		r := new(results.Report)
		c.judged(r)
		var got verdicts
		for _, v := range r.Verdicts {
			switch {
			case v.Held:
				got.held++
			case v.Doubted:
				got.doubted++
			default:
				got.broken++
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
