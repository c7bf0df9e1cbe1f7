package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/chaos"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/engine"
)

// chaosTest is the test with the given options.
func chaosTest(o *chaos.Options) test {
	return test{"chaos", "Everything at once: failing SSPs, hostile clients, reloads, hand-overs",
		"Sends mixed traffic over HTTP/1, pipelined, TLS and HTTP/2 in all five modes to SSPs whose\n" +
			"behaviour changes all the time, beside hostile clients, reloads and hand-overs. Each request\n" +
			"carries a number that its response must echo, and SSPs count the POSTs that they process.\n" +
			"Now and then all clients pause, and what adbuffer still holds is measured. The exit status\n" +
			"is 1 if a promise was broken.",
		func(ctx context.Context, e *engine.Env) (*results.Report, error) { return chaos.Run(ctx, e, *o) }}
}

func newChaos(stdout, stderr *os.File) *cobra.Command {
	o := chaos.Options{Allowance: chaos.DefaultAllowance, Patience: chaos.DefaultPatience, Think: chaos.DefaultThink}
	cmd := newTest(chaosTest(&o), stdout, stderr)
	cmd.Example = `  go run ./loadtest chaos --for 30m
  go run ./loadtest chaos --for 2m --seed 42`
	cmd.Flags().DurationVar(&o.For, "for", 0, "how long; default: 20 minutes times --scale")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "of all that is drawn; default: drawn and printed")
	cmd.Flags().DurationVar(&o.Allowance, "allowance", o.Allowance, "how much later than its deadline a response may come")
	cmd.Flags().DurationVar(&o.Patience, "patience", o.Patience, "how long a healthy SSP may take to respond; a slow machine needs more")
	cmd.Flags().DurationVar(&o.Think, "think", o.Think, "a client's mean pause between two requests")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if cmd.Flags().Changed("for") && o.For < chaos.LeastLength {
			return fmt.Errorf("--for %v: must be at least %v", o.For, chaos.LeastLength)
		}
		if o.Allowance < 0 || o.Patience < time.Millisecond || o.Think < time.Millisecond {
			return fmt.Errorf("--allowance must be at least 0, --patience and --think at least 1ms")
		}
		return nil
	}
	return cmd
}
