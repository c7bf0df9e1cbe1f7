package main

import (
	"os"

	"github.com/spf13/cobra"
)

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Measure adbuffer, compare it, and show it",
		Long: `loadtest answers three questions with one command each: how much one core carries
(peers), how big pools must be (pools), and whether adbuffer is better than what
there is (peers, and the field reports keepalive, pipeline, pools, rules, adproxy).
sick, cold, churn, burst, endpoints, fairness, soak and chaos say in words whether adbuffer's promises hold.`,
		Example: `  go run ./loadtest run loadtest/scenarios/steady.yaml   load from a file
  go run ./loadtest keepalive                            one field report
  go run ./loadtest all --scale 0.1 --out loadtest/results
  go run ./loadtest report --results loadtest/results    an HTML page and a Markdown table`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(stdout, stderr), newSoak(stdout, stderr), newChaos(stdout, stderr), newPeers(stdout, stderr), newAll(stdout, stderr), newReport(stdout))
	for _, t := range append(tests, storyTest) {
		root.AddCommand(newTest(t, stdout, stderr))
	}
	return root
}
