// Command adbuffer forwards ad requests to SSPs over keep-alive connection
// pools. Run "adbuffer demo" to see it work.
package main

import (
	"context"
	"fmt"
	"os"

	"adbuffer/internal/wire/logs"
)

func main() {
	code := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code)
}

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // errors in the configuration, a listener that cannot be opened, requests cut
	exitUsage  = 2
)

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	cmd := newRoot(stdout, stderr)
	addCobraCommands(cmd)
	cmd.SetArgs(args)
	cmd, err := cmd.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case isFailure(err):
		if text := err.Error(); text != "" && serves(cmd) {
			sink := logs.NewSink(stderr, nil) // unlike stderr, does not block if nobody reads
			fmt.Fprintln(sink, text)
			sink.Sync() //nolint:errcheck // it never fails
		} else if text != "" {
			fmt.Fprintln(stderr, text)
		}
		return exitFailed
	default:
		fmt.Fprintf(stderr, "adbuffer: %v\nUsage: %s\nRun '%s --help' for more.\n", err, cmd.UseLine(), cmd.CommandPath())
		return exitUsage
	}
}
