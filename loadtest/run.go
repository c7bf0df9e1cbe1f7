package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/scenario"
)

func newRun(stdout, stderr *os.File) *cobra.Command {
	var (
		adbuffer            string
		asJSON, allowRemote bool
		scale               float64
	)
	cmd := &cobra.Command{
		Use:   "run SCENARIO.yaml",
		Short: "Run one scenario",
		Long: `Runs a scenario. Starts the simulated SSPs and the adbuffer that the scenario names, or
uses a server that is already running. Sends the scenario's requests, and prints rates,
latencies, errors by kind, handshakes, and the CPU and memory that the server used. "-"
reads the scenario from standard input. Ctrl-C ends the load and prints the results so far.

In an open loop, the latency of a request counts from the moment at which the request was
due, so that it includes the time in which the server stalled. Figures that cannot be
trusted are marked.

The exit status is 1 if the scenario is wrong, the server refuses connections, or a promise
of expect.shape was broken.`,
		Example: `  go run ./loadtest run loadtest/scenarios/steady.yaml
  go run ./loadtest run loadtest/scenarios/running-server.yaml --json > out.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := scenario.ReadFile(args[0])
			if err != nil {
				return failure{err}
			}
			if err := checkScale(scale); err != nil {
				return err
			}
			s.Scale(scale)
			return withRig(stderr, adbuffer, func(r *rig.Rig) error {
				out, err := scenario.Run(cmd.Context(), r, s, allowRemote, newProgress(stderr, s.Plan()))
				switch {
				case out == nil:
					return err
				case asJSON:
					j := json.NewEncoder(stdout)
					j.SetIndent("", "  ")
					err = errors.Join(err, j.Encode(out))
				default:
					err = errors.Join(err, out.Print(stdout))
				}
				return errors.Join(err, out.Broken())
			})
		},
	}
	cmd.Flags().Float64Var(&scale, "scale", 1, "multiplies the duration of all phases")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON")
	cmd.Flags().BoolVar(&allowRemote, "allow-remote", false,
		"load a server on another machine; get its owner's permission first")
	cmd.Flags().StringVar(&adbuffer, "adbuffer", "", "adbuffer's `executable`; default: built from this module")
	return cmd
}

// newProgress returns a function that prints the progress of a run, a line in each interval.
func newProgress(w io.Writer, p load.Plan) func(load.Progress) {
	length := 0.0
	for _, phase := range p.Phases {
		length += phase.Duration.Seconds()
	}
	return func(p load.Progress) {
		fmt.Fprintf(w, "%5.0f of %.0f s  %8d responses  %6d errors  p50 %8.2f ms  p99 %8.2f ms  %6d waiting\n",
			p.Second, length, p.Answered, p.Errors, p.P50, p.P99, p.Waiting)
	}
}
