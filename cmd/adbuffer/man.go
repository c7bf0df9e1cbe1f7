package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"adbuffer/internal/app"
)

func newMan(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages of all commands",
		Long: `Writes a man page of section 1 for each command into a folder, such as
/usr/local/share/man/man1. The pages have the date of SOURCE_DATE_EPOCH, or of today.`,
		Example: "  adbuffer man /usr/local/share/man/man1 && man adbuffer-check",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return failed(err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			describeForMan(root)
			header := &doc.GenManHeader{Section: "1", Source: "adbuffer " + app.Version, Manual: "adbuffer"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return failed(err)
			}
			_, err := fmt.Fprintf(stdout, "man pages written to %s\n", args[0])
			return failed(err)
		},
	}
}

// describeForMan makes Markdown of the descriptions of a command and those below it, which the man pages are
// made from. A paragraph with an indented line is a table: its lines stay as they are.
func describeForMan(cmd *cobra.Command) {
	paragraphs := strings.Split(cmp.Or(cmd.Long, cmd.Short), "\n\n")
	for i, p := range paragraphs {
		if strings.Contains("\n"+p, "\n  ") {
			paragraphs[i] = "```\n" + p + "\n```"
		}
	}
	cmd.Long = strings.Join(paragraphs, "\n\n") + "\n\n# EXIT STATUS\n" + strings.TrimPrefix(strings.TrimSpace(exitCodes), "Exit status: ")
	for _, below := range cmd.Commands() {
		describeForMan(below)
	}
}
