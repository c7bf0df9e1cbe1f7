package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
)

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "adbuffer",
		Short: "Forwards ad requests to SSPs over keep-alive connection pools",
		Long: `adbuffer takes ad requests on /fillbuffer and forwards them to SSPs over
keep-alive connections, which it pools per SSP, within a deadline.`,
		Example: `  adbuffer demo                                  see it work, without any set-up
  adbuffer check --config config/adbuffer.yaml   validate a configuration
  adbuffer serve --config config/adbuffer.yaml   run the service
  adbuffer check --config new.yaml --against http://127.0.0.1:9090   what a reload would change
  adbuffer explain --config config/adbuffer.yaml '/fillbuffer?pub=1'   how a request would be handled
  adbuffer plan --rps 5000 --p50 80ms --p99 250ms   size a pool`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newServe(stderr), newCheck(stdout), newDemo(stdout, stderr), newPlan(stdout), newHealth(stdout), newSim(stdout), newSSP(stdout), newExplain(stdout), newTail(stdout), newBundle(stdout), newVersion(stdout))
	return root
}

// failure is an error of a command's work, not of its flags.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

func isFailure(err error) bool {
	var f failure
	return errors.As(err, &f)
}
