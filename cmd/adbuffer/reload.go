package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/setup/reload"
)

// reloadTimeout is longer than a reload takes, including its wait for a reload in progress.
const reloadTimeout = time.Minute

func newReload(stdout *os.File) *cobra.Command {
	var at admin.ClientOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running adbuffer read its configuration again",
		Long: `Makes a running adbuffer read its configuration file again, and prints what changed. The
exit status is 1 if the file has errors or a change needs a restart; then nothing changes.
adbuffer check --admin says beforehand what a file would change.`,
		Example: "  adbuffer reload\n  adbuffer reload --admin https://10.0.0.7:9090 --token-file token --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := runningClient(&at)
			if err != nil {
				return err
			}
			return failed(askReload(cmd.Context(), client, stdout, asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	addAdminFlags(cmd, &at, runningHelp)
	return cmd
}

func askReload(ctx context.Context, client *admin.Client, stdout io.Writer, asJSON bool) error {
	var report reload.Report
	err := ask(ctx, client, reloadTimeout, http.MethodPost, "/reload", nil, &report, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
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
