// Command loadtest loads adbuffer, compares it with other proxies, and reports the results. Run
// "go run ./loadtest --help". It needs Linux.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/chaos"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/tests"
)

func main() {
	rig.ChildMain()
	// The first signal cancels ctx: run then prints the results so far, and the other commands fail. The second signal
	// kills the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// These are the exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // an invalid scenario, a load or test that could not be completed, or a broken promise of adbuffer
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
	root.AddCommand(newRun(stdout, stderr))
	for _, t := range append(tests.Commands(), chaos.Command()) {
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if t.Check != nil {
			if err := t.Check(cmd.Flags()); err != nil {
				return err
			}
		}
		if err := checkScale(scale); err != nil {
			return err
		}
		return withRig(stderr, adbuffer, func(r *rig.Rig) error {
			r.Scale = scale
			r.Separate()
			err := r.Do(cmd.Context(), func() {
				r.Build()
				r.Report(t.Short, t.Question)
				t.Test(r)
			})
			if err != nil {
				return err
			}
			r.Rep.Seconds = time.Since(r.Rep.Started).Seconds()
			if asJSON {
				err = r.Rep.JSON(stdout)
			} else {
				_, err = fmt.Fprint(stdout, r.Rep.Markdown())
			}
			return cmp.Or(err, r.Rep.Broken())
		})
	}
	cmd.Flags().Float64Var(&scale, "scale", 1, "size of the test; 1 is that of the original measurement")
	cmd.Flags().StringVar(&adbuffer, "adbuffer", "", "adbuffer's `executable`; default: built from this module")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON")
	if t.Flags != nil {
		t.Flags(cmd.Flags())
	}
	return cmd
}

func checkScale(scale float64) error {
	if scale > 0 && scale <= 100 {
		return nil
	}
	return fmt.Errorf("--scale %v: must be above 0 and at most 100", scale)
}

// withRig calls fn with a new rig of scale 1, which logs its progress to stderr. The error that withRig returns is a
// failure.
func withRig(stderr *os.File, adbuffer string, fn func(*rig.Rig) error) error {
	r, err := rig.New(func(format string, args ...any) {
		fmt.Fprintf(stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	})
	if err != nil {
		return failure{err}
	}
	defer r.Close()
	r.Adbuffer = adbuffer
	if err := fn(r); err != nil {
		return failure{err}
	}
	return nil
}
