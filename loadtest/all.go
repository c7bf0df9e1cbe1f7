package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/chaos"
	"adbuffer/loadtest/internal/reports"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/engine"
)

func newAll(stdout, stderr *os.File) *cobra.Command {
	var f suiteFlags
	var o reports.PeersOptions
	cmd := &cobra.Command{Use: "all", Short: "Everything, one after the other, and the report", Args: cobra.NoArgs,
		Long: `Runs the five field reports, sick, cold, churn, burst, fairness, soak, chaos and peers, and writes
report.html and report.md beside the results. A test that fails is named at the end and
does not keep the others from running. The exit status is 1 if one failed or a promise
was broken.`,
		Example: `  go run ./loadtest all --scale 0.1 --require nginx,haproxy,caddy,fastify`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPeers(o); err != nil {
				return err
			}
			if f.out == "" {
				return errors.New("--out: the report needs a folder")
			}
			return f.with(cmd.Context(), stderr, func(e *engine.Env) error {
				return f.everything(cmd.Context(), e, o, stdout)
			})
		}}
	f.add(cmd, 0.1)
	peersFlags(cmd, &o)
	if err := errors.Join(cmd.Flags().Set("out", "loadtest/results"), cmd.Flags().Set("rounds", "1")); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	cmd.Flags().Lookup("out").DefValue, cmd.Flags().Lookup("rounds").DefValue = "loadtest/results", "1"
	return cmd
}

func (f *suiteFlags) everything(ctx context.Context, e *engine.Env, o reports.PeersOptions, stdout *os.File) error {
	run := append([]test(nil), tests...)
	run = append(run, soakTest(&reports.SoakOptions{}), chaosTest(&chaos.Options{Allowance: chaos.DefaultAllowance, Patience: chaos.DefaultPatience, Think: chaos.DefaultThink}), test{name: "peers", run: func(ctx context.Context, e *engine.Env) (*results.Report, error) { return reports.Peers(ctx, e, o) }})
	var errs []error
	for _, t := range run {
		r, err := t.run(ctx, e)
		// What a test has started and not stopped must not disturb the next.
		e.Rig.StopAll()
		if err == nil {
			err = f.publish(stdout, r)
		}
		if err == nil && !r.Held() {
			err = errBroken
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	html, md, err := results.Write(f.out, f.out)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	e.Say("wrote %s and %s", html, md)
	return errors.Join(errs...)
}

func newReport(stdout *os.File) *cobra.Command {
	var in, out string
	cmd := &cobra.Command{Use: "report", Short: "An HTML page with charts and a Markdown table", Args: cobra.NoArgs,
		Long: `Turns the results of a folder into report.html, one file that needs no network, and
report.md.`,
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				out = in
			}
			html, md, err := results.Write(in, out)
			if err != nil {
				return failure{err}
			}
			fmt.Fprintf(stdout, "%s\n%s\n", html, md)
			return nil
		}}
	cmd.Flags().StringVar(&in, "results", "loadtest/results", "`folder` with the results")
	cmd.Flags().StringVar(&out, "out", "", "`folder` for the report; default: that of the results")
	return cmd
}
