// Package tests has the load tests. Each test is a function that starts programs, loads them, measures, and
// writes tables and verdicts. Separate functions judge its promises by what was measured.
package tests

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/rig"
)

// Command is a load test on the command line.
type Command struct {
	Name, Short string
	Question    string // the question that the test answers, for the help and the report
	Long        string // the rest of the help
	Test        func(*rig.Rig)
	// File is where the argument is stored, the path of a scenario. A test without an argument has nil, and loads adbuffer.
	File *string

	Example string
	Flags   func(*pflag.FlagSet)       // adds flags of its own; nil adds none
	Check   func(*pflag.FlagSet) error // checks them; nil checks nothing
}

// Commands returns the load tests of this package.
func Commands() []Command {
	return []Command{peersCommand(), fieldCommand(), soakCommand(), overloadCommand(), sizingCommand(), trafficCommand()}
}

// rounds has the figures of each round of one situation. Those of a round that was not measured are nil.
type rounds []*rig.Figures

func (r rounds) values(figure func(*rig.Figures) float64) (all []float64) {
	for _, f := range r {
		if f != nil {
			all = append(all, figure(f))
		}
	}
	return all
}

// median returns the median of a figure. The median of no rounds is NaN.
func (r rounds) median(figure func(*rig.Figures) float64) float64 {
	return rig.Median(r.values(figure))
}

// ratios compares situations round by round, because the speed of the machine differs between rounds.
func (r rounds) ratios(base rounds, figure func(*rig.Figures) float64) (all []float64) {
	for i := range min(len(r), len(base)) {
		if r[i] != nil && base[i] != nil && figure(base[i]) > 0 {
			all = append(all, figure(r[i])/figure(base[i]))
		}
	}
	return all
}

// doubts returns the doubts about the figures, each once.
func (r rounds) doubts() (all []string) {
	for _, f := range r {
		if f != nil {
			all = append(all, f.Doubts...)
		}
	}
	return distinct(all)
}

func p50(f *rig.Figures) float64   { return f.Latency.P50 }
func p99(f *rig.Figures) float64   { return f.Latency.P99 }
func p999(f *rig.Figures) float64  { return f.Latency.P999 }
func cpuUs(f *rig.Figures) float64 { return f.CPUus }

// distinct returns the distinct texts of all, in the order of their first occurrence.
func distinct(all []string) (out []string) {
	for _, text := range all {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

func share(part, whole uint64) float64 { return float64(part) / float64(whole) }

// steady returns the behaviour of an SSP with the same latency for all requests.
func steady(d time.Duration) sspsim.Behaviour {
	return sspsim.Behaviour{Latency: sspsim.Constant(d)}
}

// small is a request of few bytes.
var small = rig.Get("/fillbuffer?pub=1")

// limits returns the keys that limit the connections and the waiting requests of a pool.
func limits(conns, pending int, timeout string) string {
	return fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: %s", conns, pending, timeout)
}
