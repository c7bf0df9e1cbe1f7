package main

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"adbuffer/internal/app/app"
)

// exitCodes is the end of each command's help.
const exitCodes = `
Exit status: 0 for success; 1 if the command's work failed, such as errors in a
configuration, a listener that cannot be opened, requests that were cut, no response of a
running adbuffer; 2 for wrong usage.
`

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "adbuffer COMMAND",
		Short: "Forwards ad requests to SSPs over keep-alive connection pools",
		Long: `adbuffer takes ad requests on /fillbuffer and forwards them to SSPs over
keep-alive connections, which it pools per SSP, within a deadline.`,
		Example: `  adbuffer demo                                  see it work, without any set-up
  adbuffer check config/adbuffer.yaml            validate a configuration
  adbuffer serve --config config/adbuffer.yaml   run the service
  adbuffer check new.yaml --admin http://127.0.0.1:9090   what a reload would change
  adbuffer explain --config config/adbuffer.yaml '/fillbuffer?pub=1'   how a request would be handled
  adbuffer test config/openrtb.test.yaml         what a configuration must do with requests
  adbuffer probe https://rtb.openx.example/bid   what to configure for an SSP
  adbuffer plan --rps 5000 --p50 80ms --p99 250ms   size a pool`,
		Version: app.Version,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if serves(cmd) {
				// A write to a pipe without a reader must fail, and not kill the process.
				signal.Ignore(syscall.SIGPIPE)
			}
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate(versionLine())
	root.SetUsageTemplate(root.UsageTemplate() + exitCodes)
	root.AddCommand(newServe(stderr), newCheck(stdout, stderr), newDemo(stdout, stderr), newPlan(stdout), newHealth(stdout), newSim(stdout), newSSP(stdout), newExplain(stdout), newTest(stdout), newTail(stdout), newBundle(stdout), newReload(stdout), newProbe(stdout), newVersion(stdout))
	return root
}

// serves reports whether a command serves requests until a signal ends it. Such a command must go on if its
// standard output or standard error fails or blocks.
func serves(cmd *cobra.Command) bool {
	return slices.Contains([]string{"serve", "sim", "demo"}, cmd.Name())
}

// addCobraCommands adds cobra's commands help and completion, and makes them refuse words that name no
// command. cobra's own versions would succeed.
func addCobraCommands(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = namesCommand
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // without it, Args is not asked
		}
	}
}

func namesCommand(cmd *cobra.Command, words []string) error {
	named, rest, err := cmd.Root().Find(words)
	if err != nil {
		return err
	}
	return cobra.NoArgs(named, rest)
}

// failure is an error in the work of a command, as opposed to an error in its arguments.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

func isFailure(err error) bool {
	_, ok := errors.AsType[failure](err)
	return ok
}
