package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"adbuffer/internal/app"
)

func newMan(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages of all commands",
		Long: `Writes a man page of section 1 for each command into a folder, such as
/usr/local/share/man/man1. The pages have no date, so that they are the same whenever they are written.`,
		Example: "  adbuffer man /usr/local/share/man/man1 && man adbuffer-check",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return failed(err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "adbuffer " + app.Version, Manual: "adbuffer", Date: new(time.Time)}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return failed(err)
			}
			_, err := fmt.Fprintf(stdout, "man pages written to %s\n", args[0])
			return failed(err)
		},
	}
}
