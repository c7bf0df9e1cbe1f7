package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/reports"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/engine"
)

// soakTest is the test with the given options.
func soakTest(o *reports.SoakOptions) test {
	return test{"soak", "A million requests each way to a real nginx, every one accounted for",
		"Sends a million requests each over HTTP/1, HTTP/1 pipelined at depth 8 and at depth 64,\n" +
			"and HTTP/2 through adbuffer to an nginx that closes connections after 1 000 requests.\n" +
			"Each answer must carry its request's number, and nginx's log each number exactly once;\n" +
			"the exit status is 1 if one does not. It needs nginx.",
		func(ctx context.Context, e *engine.Env) (*results.Report, error) { return reports.Soak(ctx, e, *o) }}
}

func newSoak(stdout, stderr *os.File) *cobra.Command {
	var o reports.SoakOptions
	cmd := newTest(soakTest(&o), stdout, stderr)
	cmd.Example = `  go run ./loadtest soak --requests 1000000
  go run ./loadtest soak --scale 0.01 --json`
	cmd.Flags().IntVar(&o.Requests, "requests", 0, "requests each way; default: a million times --scale")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.Requests < 0 || cmd.Flags().Changed("requests") && o.Requests == 0 {
			return errors.New("--requests: must be at least 1")
		}
		return nil
	}
	return cmd
}
