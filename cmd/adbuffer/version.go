package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"adbuffer/internal/app/app"
)

func newVersion(stdout *os.File) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit and Go version",
		Example: "  adbuffer version\n  adbuffer version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return failed(json.NewEncoder(stdout).Encode(map[string]string{
					"version": app.Version, "commit": app.Commit, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				}))
			}
			_, err := fmt.Fprint(stdout, versionLine())
			return failed(err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func versionLine() string {
	return fmt.Sprintf("adbuffer %s (commit %s, %s, %s/%s)\n", app.Version, cmp.Or(app.Commit, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
