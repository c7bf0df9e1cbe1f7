package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/operate/replay"
)

func newReload(stdout *os.File) *cobra.Command {
	var at admin.ClientOptions
	var f trafficFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running adbuffer read its configuration again",
		Long: `Makes a running adbuffer read its configuration file again, and prints what changed. The
exit status is 1 if the file has errors, a change needs a restart, or the sampled traffic would
change by more than admin.sample.max_change allows; then nothing changes. adbuffer check --admin
says beforehand what a file would change.

With --traffic, the running adbuffer takes the requests that it has sampled (admin.sample)
through the file before it applies it, and reload prints the report of adbuffer check --traffic.
--max-change takes the place of admin.sample.max_change for this reload. With it, unless it is any,
nothing changes if no request is sampled, or if too many cannot be judged.

A changed file is also read without this command, within two seconds: then only
admin.sample.max_change can refuse it.`,
		Example: `  adbuffer reload
  adbuffer reload --traffic --max-change 30%
  adbuffer reload --admin https://10.0.0.7:9090 --token-file token --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := f.reloadTarget()
			if err != nil {
				return err
			}
			client, err := runningClient(&at)
			if err != nil {
				return err
			}
			return failed(askReload(cmd.Context(), client, target, stdout, asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&f.traffic, "traffic", false, "say what the file does to the sampled traffic")
	cmd.Flags().StringVar(&f.maxChange, "max-change", "", "with --traffic: the largest change of a route's or an SSP's rate that is applied, such as 10%, or any")
	addAdminFlags(cmd, &at, runningHelp)
	return cmd
}

// reloadTarget returns the target of a request for a reload.
func (f *trafficFlags) reloadTarget() (string, error) {
	limit, err := f.limit()
	switch {
	case err != nil || !f.traffic:
		return "/reload", err
	case f.maxChange == "":
		return "/reload?traffic=1", nil
	}
	return "/reload?traffic=1&max_change=" + url.QueryEscape(strconv.FormatFloat(limit, 'g', -1, 64)), nil
}

func askReload(ctx context.Context, client *admin.Client, target string, stdout io.Writer, asJSON bool) error {
	var report replay.Reload
	err := ask(ctx, client, trafficTimeout, http.MethodPost, target, nil, &report, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	if err != nil {
		return err
	}
	if report.Result == "" {
		return fmt.Errorf("%s/reload does not respond as an adbuffer does", client.URL())
	}
	refused := report.Err()
	if asJSON {
		if err := printJSON(stdout, report); err != nil || refused == nil {
			return err
		}
		return errPrinted
	}
	if report.Traffic != nil {
		report.Traffic.Write(stdout)
		if refused == nil {
			report.Traffic.WriteExceeded(stdout)
		}
	}
	if refused != nil {
		return fmt.Errorf("%s, nothing changed:\n%w", client.URL(), refused)
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(stdout, "# warning: %v\n", w)
	}
	for _, c := range report.Changes {
		fmt.Fprintln(stdout, c)
	}
	_, err = fmt.Fprintf(stdout, "# %s: configuration %s, changes: %d\n", client.URL(), report.Result, len(report.Changes))
	return err
}
