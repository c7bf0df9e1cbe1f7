package tests

import (
	"testing"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/stage"
)

// figures returns the figures of n requests, of which some failed, with p99 in milliseconds.
func figures(n, failed uint64, p99 float64) *stage.Figures {
	return &stage.Figures{Summary: load.Summary{Offered: n, Answered: n - failed, Failed: failed,
		Latency: load.Latency{P99: p99}}}
}

// classes are requests of these names, each with its own failures and the same p99.
func classes(p99 float64, failed map[string]uint64, names ...string) *stage.Figures {
	f := figures(0, 0, p99)
	for _, name := range names {
		s := figures(1000, failed[name], p99).Summary
		s.Name = name
		f.Classes, f.Phases = append(f.Classes, s), append(f.Phases, s)
	}
	return f
}

// Each promise holds on good figures and breaks on bad ones. A promise that other work of the machine can
// break is doubted if there are doubts about its figures.
func TestEachPromiseHoldsAndBreaks(t *testing.T) {
	type judge = func(*results.Report)
	// The log names it after 3 s, metrics after 4 s, an alert after alerted, and that ends after quiet.
	told := func(alerted, quiet time.Duration, misleading ...string) judge {
		end := time.Now()
		s := &scene{incident: &incident{name: "a"}, began: end, ended: end, names: names{misleading: misleading,
			first: [incidentSources]time.Time{end.Add(3 * time.Second), end.Add(4 * time.Second), end.Add(alerted)},
			last:  [incidentSources]time.Time{byLog: end.Add(-time.Second), byAlert: end.Add(quiet)}}}
		return func(r *results.Report) { judgeIncidents(r, []*scene{s}) }
	}
	peers := func(pipelined, h2, h1 float64) judge {
		return func(r *results.Report) {
			c := &comparison{Experiment: &Experiment{Rep: r}, rows: []*peerRow{rounds("adbuffer", "h1", h1),
				rounds("adbuffer", "pipelined", pipelined), rounds("adbuffer", "h2tls", h2),
				rounds("haproxy", "h1", 10), rounds("haproxy", "h2tls", 10)}}
			c.judge()
		}
	}
	auctioned := func(queries, filled uint64, us, cpu float64, doubts ...string) judge {
		row := func(asks, proxy string, filters bool, queries, filled uint64, cpu float64) *exchangeRow {
			f := classes(1, nil, "C0", "C1") // two SSPs want requests from C0, one from C1
			f.Answered, f.Statuses, f.CPUus, f.Doubts, f.SSP.Responded = 2000, map[int]uint64{200: filled}, cpu, doubts, queries
			return &exchangeRow{asks: asks, proxy: proxy, filters: filters, rounds: []*stage.Figures{f}}
		}
		return func(r *results.Report) {
			judgeExchange(r, []*exchangeRow{row("all five", "adbuffer", false, 10000, 1900, 100),
				row("all five", "adbuffer", true, queries, filled, cpu), row("one", "adbuffer", true, 2000, 1900, us),
				row("one", "HAProxy", true, 2000, 1900, 20)})
		}
	}
	for _, c := range []struct {
		name             string
		holds, breaks    judge
		broken, promises int // how many are broken, of how many
		doubtful         judge
	}{
		{"exchange, queries", auctioned(3000, 1900, 30, 99), auctioned(3001, 1900, 30, 99), 1, 4, auctioned(2999, 1900, 30, 99, "late")},
		{"exchange, fills", auctioned(3000, 1900, 30, 99), auctioned(3000, 1899, 30, 99), 1, 4, nil},
		{"exchange, CPU", auctioned(3000, 1900, 30, 99), auctioned(3000, 1900, 30, 100), 1, 4, nil},
		{"exchange, HAProxy", auctioned(3000, 1900, 30, 99), auctioned(3000, 1900, 31, 99), 1, 4, auctioned(3000, 1900, 31, 99, "late")},
		{"incidents, named", told(alertWithin, alertQuiet), told(alertWithin+1, alertQuiet), 1, 3, nil},
		{"incidents, misleading", told(alertWithin, alertQuiet), told(alertWithin, alertQuiet, "AdbufferOther"), 1, 3, nil},
		{"incidents, quiet", told(alertWithin, alertQuiet), told(alertWithin, alertQuiet+1), 1, 3, nil},
		{"peers, pipelined", peers(10, 11, 13), peers(11, 11, 13), 1, 4, nil},
		{"peers, h2", peers(10, 11, 13), peers(10, 12, 13), 1, 4, nil},
		{"peers, p99 and p99.9", peers(10, 11, 13), peers(10, 11, 16), 2, 4, nil},
	} {
		verdicts := func(judged judge) (held, broken, doubted int) {
			r := new(results.Report)
			judged(r)
			for _, v := range r.Verdicts {
				switch {
				case v.Held:
					held++
				case v.Doubted:
					doubted++
				default:
					broken++
				}
			}
			return held, broken, doubted
		}
		if held, broken, doubted := verdicts(c.holds); held != c.promises || broken+doubted > 0 {
			t.Errorf("%s: %d promises hold, %d are broken, %d doubted, want %d to hold", c.name, held, broken, doubted,
				c.promises)
		}
		if held, broken, doubted := verdicts(c.breaks); broken != c.broken || doubted > 0 || held != c.promises-broken {
			t.Errorf("%s: %d promises hold, %d are broken, %d doubted, want %d broken", c.name, held, broken, doubted,
				c.broken)
		}
		if c.doubtful != nil {
			if _, broken, doubted := verdicts(c.doubtful); broken > 0 || doubted != 1 {
				t.Errorf("%s: %d promises are broken, %d doubted, want 1 doubted", c.name, broken, doubted)
			}
		}
	}
}
