package tests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"adbuffer/loadtest/internal/rig"
)

// fieldReport repeats a field report: a measurement that others have made without adbuffer.
type fieldReport struct {
	name string
	test func(*rig.Rig)
}

var fieldReports = []fieldReport{{"keepalive", keepAlive}, {"pipeline", pipeline}, {"pools", pools}, {"rules", rules}, {"adproxy", adProxy}}

// run repeats the report, and puts its name before the titles of its tables and its notes.
func (f fieldReport) run(e *rig.Rig) {
	r := e.Rep
	tables, notes := len(r.Tables), len(r.Notes)
	f.test(e)
	for _, t := range r.Tables[tables:] {
		t.Title = f.name + ": " + t.Title
	}
	for i := notes; i < len(r.Notes); i++ {
		r.Notes[i] = f.name + ": " + r.Notes[i]
	}
}

func fieldCommand() Command {
	var only, names []string
	for _, f := range fieldReports {
		names = append(names, f.name)
	}
	return Command{Name: "field", Short: "Five field reports, with adbuffer between client and SSP",
		Question: "Do five field reports come out better with adbuffer between client and SSP?",
		Long: `Repeats with adbuffer what others have measured without it; --only selects reports:
  keepalive  500 sequential requests, on a connection each and on one
  pipeline   10 000 requests: 100 pipelines of 100, 100 workers, and all at once
  pools      throughput by pool size and latency, compared with N / X, the requests/s that N places
             carry at latency X, and a queue that overflows; below --scale 0.5 there are three sizes
             and three latencies
  rules      keep-alive on and off, and the ports of the client
  adproxy    no keep-alive, on fastify, on a fasthttp program and on adbuffer`,
		Test: func(e *rig.Rig) {
			for _, f := range fieldReports {
				if len(only) == 0 || slices.Contains(only, f.name) {
					f.run(e)
				}
			}
		},
		Example: "  go run ./loadtest field --scale 0.1\n  go run ./loadtest field --only keepalive,pipeline",
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&only, "only", nil, "reports to repeat; default: all of "+strings.Join(names, ","))
		},
		Check: func(*pflag.FlagSet) error {
			for _, name := range only {
				if !slices.Contains(names, name) {
					return fmt.Errorf("--only %q: must be one of %s", name, strings.Join(names, ","))
				}
			}
			return nil
		},
	}
}
