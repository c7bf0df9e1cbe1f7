// Command loadtest loads adbuffer, compares it with other proxies, and reports the results. Run
// "go run ./loadtest --help". It needs Linux.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/chaos"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/scenario"
	"adbuffer/loadtest/internal/tests"
)

func main() {
	rig.ChildMain()
	// The first signal cancels ctx, and the command fails. The second signal kills the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code, which is 1 after any error and if a promise was broken.
func run(ctx context.Context, args []string, stdout, stderr *os.File) int {
	cmd := newRoot(stdout, stderr)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Load adbuffer, and compare it with other proxies",
		Long: `loadtest measures how much one core carries and what a request costs, in adbuffer and
in other proxies (peers), and repeats five field reports (field). soak, chaos, overload,
sizing and traffic report which promises of adbuffer hold. run sends a load from a file.`,
		Example: `  go run ./loadtest run loadtest/scenarios/steady.yaml   load from a file
  go run ./loadtest field --only keepalive               one field report
  go run ./loadtest peers --readme README.md             the table of the README`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, t := range append(tests.Commands(), chaos.Command(), scenario.Command()) {
		root.AddCommand(newTest(stdout, stderr, t))
	}
	return root
}

// newTest returns the command of a load test. It prints the report of the test.
func newTest(stdout, stderr *os.File, t tests.Command) *cobra.Command {
	var (
		scale    float64
		adbuffer string
		asJSON   bool
	)
	cmd := &cobra.Command{Use: t.Name, Short: t.Short, Long: t.Question + "\n\n" + t.Long, Example: t.Example, Args: cobra.NoArgs}
	if t.File != nil {
		cmd.Use, cmd.Args = t.Name+" SCENARIO.yaml", cobra.ExactArgs(1)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if t.Check != nil {
			if err := t.Check(cmd.Flags()); err != nil {
				return err
			}
		}
		if !(scale > 0 && scale <= 100) {
			return fmt.Errorf("--scale %v: must be above 0 and at most 100", scale)
		}
		r, err := rig.New(func(format string, args ...any) {
			fmt.Fprintf(stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
		})
		if err != nil {
			return err
		}
		defer r.Close()
		r.Adbuffer, r.Scale = adbuffer, scale
		r.Separate()
		err = r.Do(cmd.Context(), func() {
			r.Report(t.Short, t.Question)
			if t.File != nil {
				*t.File = args[0]
			} else {
				r.Build()
			}
			t.Test(r)
		})
		if err != nil {
			return err
		}
		r.Rep.Seconds = time.Since(r.Rep.Started).Seconds()
		if asJSON {
			err = json.NewEncoder(stdout).Encode(r.Rep)
		} else {
			_, err = fmt.Fprint(stdout, r.Rep.Markdown())
		}
		return cmp.Or(err, r.Rep.Broken())
	}
	cmd.Flags().Float64Var(&scale, "scale", 1, "size of the test; 1 is that of the original measurement, or the durations of the scenario")
	cmd.Flags().StringVar(&adbuffer, "adbuffer", "", "adbuffer's `executable`; default: built from this module")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON")
	if t.Flags != nil {
		t.Flags(cmd.Flags())
	}
	return cmd
}
