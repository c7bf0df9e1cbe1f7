// Command loadtest loads adbuffer, compares it with other proxies, and reports the results. Run
// "go run ./loadtest --help". It needs Linux.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/rig"
)

func main() {
	rig.ChildMain()
	// After the first signal the measurement ends and its results are printed. The second signal ends
	// the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// These are the exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a wrong scenario, a server that refuses connections, a broken promise
	exitUsage  = 2
)

// failure is an error other than a wrong command line.
type failure struct{ err error }

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	cmd := newRoot(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var f failure
	if errors.As(err, &f) {
		if text := f.Error(); text != "" {
			fmt.Fprintln(stderr, text)
		}
		return exitFailed
	}
	fmt.Fprintf(stderr, "%v\nRun \"go run ./loadtest --help\" for usage.\n", err)
	return exitUsage
}

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Measure adbuffer, compare it, and show it",
		Long: `loadtest answers three questions with one command each: how much one core carries
(peers), how big pools must be (pools), and whether adbuffer is better than other
proxies (peers, and the field reports keepalive, pipeline, pools, rules, adproxy).
sick, cold, churn, burst, endpoints, fairness, overload, soak and chaos report which promises of adbuffer
hold.`,
		Example: `  go run ./loadtest run loadtest/scenarios/steady.yaml   load from a file
  go run ./loadtest keepalive                            one field report
  go run ./loadtest all --scale 0.1 --out loadtest/results
  go run ./loadtest report --results loadtest/results    a Markdown page of them`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(stdout, stderr), newAll(&suite{stdout: stdout, stderr: stderr}), newReport(stdout))
	for _, t := range loadTests() {
		root.AddCommand(newTest(&suite{stdout: stdout, stderr: stderr}, t))
	}
	return root
}
